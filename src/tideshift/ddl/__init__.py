"""Online schema change as durable jobs: statement, plan, stages, shadow tables, and the commands of an operator."""
