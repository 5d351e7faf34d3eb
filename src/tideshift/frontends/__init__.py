"""What people and other programs talk to."""
