"""The failpoints of the store: around every transaction and statement."""

from __future__ import annotations

from tideshift.failpoint import point

BEFORE_BEGIN = point("store.before_begin", "A transaction is about to begin.")
AFTER_BEGIN = point("store.after_begin", "A transaction has begun and nothing was done in it yet.")
BEFORE_STATEMENT = point("store.before_statement", "A statement is about to be sent.")
AFTER_STATEMENT = point("store.after_statement", "A statement was answered, the transaction is still open.")
BEFORE_COMMIT = point("store.before_commit", "Everything of a transaction is done, its commit is about to be sent.")
AFTER_COMMIT = point("store.after_commit", "The commit was answered, the caller does not know it yet.")
COMMIT_ANSWER_LOST = point(
    "store.commit_answer_lost", "The commit was sent and its answer is taken for lost.", returns=bool
)
