"""Commands that meet each other or the owner: the later writer reads again, and nothing that was acknowledged is lost."""

import threading
from contextlib import contextmanager
from random import Random

import pytest

from tests.dxf.logs import assert_log_is_a_path
from tideshift.dxf import points
from tideshift.dxf.commands import TRIES, Dxf, Verdict
from tideshift.dxf.machine import TASK, TaskState
from tideshift.store import points as store_points

T = TaskState
JOIN_SECONDS = 30


class Asked(threading.Thread):
    """A client that gives one command in a thread of its own."""

    def __init__(self, database, command, task_id, **parameters):
        super().__init__(name=f"client-{command}")
        self.give = getattr(Dxf(database, actor="client"), command)
        self.task_id, self.parameters = task_id, parameters
        self.answer = None
        self.start()

    def run(self):
        answer = self.give(self.task_id, **self.parameters)
        self.answer = answer[0] if isinstance(answer, list) else answer

    def finish(self):
        self.join(JOIN_SECONDS)
        assert not self.is_alive()
        return self.answer


@contextmanager
def standing_after_reading(failpoints, database, command, task_id):
    """A client that has read the task and decided, and stands still until this block ends."""
    enabled = failpoints.enable(points.AFTER_COMMAND_READ, "1*pause", where={"command": command})
    client = Asked(database, command, task_id)
    try:
        enabled.wait_hit()
        yield client
    finally:
        enabled.disable()
        client.join(JOIN_SECONDS)


def test_the_later_of_two_commands_reads_again(cluster, rows, database, failpoints, outcomes):
    """A pause that had decided before a cancel was written is answered by what the cancel made of the task."""
    task = rows.submit()

    with standing_after_reading(failpoints, database, "pause", task.id) as pausing:
        cancelling = Asked(database, "cancel", task.id)
        if database.driver.capabilities.concurrent_writers:
            assert cancelling.finish().verdict is Verdict.APPLIED
    paused, cancelled = pausing.finish(), cancelling.finish()
    cluster.run_until(lambda: cluster.ended(task.id))

    # Where writers take turns the pause came first, and was superseded.
    if database.driver.capabilities.concurrent_writers:
        assert (paused.verdict, paused.state) == (Verdict.REFUSED, T.CANCELLING)
        assert outcomes(task.id) == [("cancel", ["applied"])]
    else:
        assert paused.verdict is Verdict.APPLIED
        assert outcomes(task.id) == [("pause", ["superseded"]), ("cancel", ["applied"])]
    assert cancelled.verdict is Verdict.APPLIED
    assert cluster.dxf.show(task.id).state is T.REVERTED
    assert_log_is_a_path(database, TASK, task_id=task.id)


def test_two_modifications_at_once_are_both_kept(cluster, rows, database, failpoints):
    """Each had seen an empty mailbox; the later one merges into what it finds."""
    task = rows.submit()
    enabled = failpoints.enable(points.AFTER_COMMAND_READ, "1*pause")
    first = Asked(database, "modify", task.id, batch_size=3)
    enabled.wait_hit()
    second = Asked(database, "modify", task.id, lock_share=44)
    if database.driver.capabilities.concurrent_writers:
        second.finish()
    enabled.disable()
    answers = [first.finish(), second.finish()]

    cluster.run_until(lambda: cluster.dxf.show(task.id).state is not T.MODIFYING)

    assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
    assert cluster.dxf.show(task.id).meta["parameters"] == {"batch_size": 3, "lock_share": 44}


COMMANDS = {
    "cancel": (lambda dxf, task_id: dxf.cancel(task_id)[0], T.REVERTED),
    "pause": (lambda dxf, task_id: dxf.pause(task_id)[0], T.PAUSED),
    "modify": (lambda dxf, task_id: dxf.modify(task_id, batch_size=3), T.SUCCEED),
}


LOOKS = [
    ("sqlite", points.AFTER_TASK_READ, 0), ("sqlite", points.AFTER_TASK_READ, 1), ("sqlite", points.AFTER_PLANNING, 0),
    ("sqlite", points.AFTER_PLANNING, 1), ("postgres15", points.AFTER_TASK_READ, 1), ("postgres15", points.AFTER_PLANNING, 0),
]  # fmt: skip


@pytest.mark.parametrize(("database_url", "point", "hit"), LOOKS, indirect=["database_url"], ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_between_the_owners_look_and_its_move_wins(cluster, rows, database, outcomes, failpoints, command, point, hit):  # noqa: PLR0917 - fixtures come by name
    """The owner decided on what it read; whatever was asked meanwhile is honoured, and its move is not."""
    give, end = COMMANDS[command]
    task = rows.submit(parts=2, batch_size=10)
    answers = []
    failpoints.enable(point, f"skip({hit}) 1*call", call=lambda **_: answers.append(give(cluster.dxf, task.id)))

    cluster.run_until(lambda: cluster.dxf.show(task.id).state is end)

    (answer,) = answers
    assert answer.verdict is Verdict.APPLIED
    assert outcomes(task.id) == [(command, ["applied"])]
    assert_log_is_a_path(database, TASK, task_id=task.id)
    if command == "modify":
        assert cluster.dxf.show(task.id).meta["parameters"]["batch_size"] == 3
        assert rows.exactly_once()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_meets_the_owners_open_transaction_waits_and_reads_again(make_cluster, rows, database, failpoints, outcomes, command):  # noqa: PLR0917 - fixtures come by name
    """The owner's move is written and not committed: the command is neither lost nor put over it."""
    end = COMMANDS[command][1]
    cluster = make_cluster(nodes=1)
    (member,) = cluster.members.values()
    member.owner.tick()
    task = rows.submit(parts=2, batch_size=10)
    enabled = failpoints.enable(store_points.BEFORE_COMMIT, "1*pause", where={"write": True})
    tick = threading.Thread(target=member.owner.tick)
    tick.start()
    enabled.wait_hit()
    asks = failpoints.enable(store_points.BEFORE_BEGIN, "off", where={"write": True})

    client = Asked(database, command, task.id, **({"batch_size": 3} if command == "modify" else {}))
    asks.wait_hit()
    if not database.driver.capabilities.concurrent_writers:
        assert client.answer is None  # who asks while the owner's transaction is open cannot have been answered
    enabled.disable()
    answer = client.finish()
    tick.join(JOIN_SECONDS)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is end)

    assert answer.verdict is Verdict.APPLIED
    assert outcomes(task.id) == [(command, ["applied"])]
    assert_log_is_a_path(database, TASK, task_id=task.id)


def test_a_conflict_that_does_not_pass_is_reported_for_its_id_alone(cluster, rows, failpoints):
    """After a few tries the command says so; the next id is still asked, and nothing half-done is left."""
    first, second = rows.submit("a"), rows.submit("b")
    terms = 'raise(tideshift.errors.LockTimeout, "the table is locked")'
    enabled = failpoints.enable(points.BEFORE_TASK_MOVE, terms, where={"task": first.id})

    answers = cluster.dxf.pause(first.id, second.id)

    assert enabled.hits == TRIES
    assert [answer.verdict for answer in answers] == [Verdict.FAILED, Verdict.APPLIED]
    assert "the table is locked" in answers[0].reason
    assert cluster.dxf.show(first.id) == first


def test_a_command_whose_answer_is_lost_is_not_given_twice(cluster, rows, failpoints, outcomes):
    """The client asks again and finds it to be so already; for a modification the later value is the same one."""
    task = rows.submit()
    failpoints.enable(store_points.COMMIT_ANSWER_LOST, "1*return(true)")
    (answer,) = cluster.dxf.pause(task.id)
    failpoints.enable(store_points.COMMIT_ANSWER_LOST, "1*return(true)")
    modified = cluster.dxf.modify(task.id, batch_size=3)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.PAUSED)

    assert (answer.verdict, modified.verdict) == (Verdict.ALREADY, Verdict.APPLIED)
    assert outcomes(task.id) == [("pause", ["applied"]), ("modify", ["superseded"]), ("modify", ["applied"])]


def test_many_clients_at_once(cluster, rows, database, seed):
    """Clients pause, resume and modify as they like while the task runs: its log is a path, and no request is lost."""
    task = rows.submit(parts=3, batch_size=2)
    acknowledged = []

    def be_client(number):
        dxf, random = Dxf(database, actor=f"client {number}"), Random(seed + number)
        for _ in range(6):
            command = random.choice(["pause", "resume", "modify", "resume"])
            answer = dxf.modify(task.id, lock_share=random.randrange(50, 100)) if command == "modify" else getattr(dxf, command)(task.id)[0]
            if answer.verdict is Verdict.APPLIED:
                acknowledged.append(answer.request_id)

    clients = [threading.Thread(target=be_client, args=(n,)) for n in range(3)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        cluster.step()
    for client in clients:
        client.join()
    cluster.dxf.resume(task.id)
    cluster.run_until(lambda: resumed_to_the_end(cluster, task.id))

    path = assert_log_is_a_path(database, TASK, task_id=task.id)
    assert path[-1] == "succeed"
    assert rows.exactly_once()
    assert acknowledged


def resumed_to_the_end(cluster, task_id):
    """Whether it has ended; a pause that came last is taken back."""
    if cluster.dxf.show(task_id).state is T.PAUSED:
        cluster.dxf.resume(task_id)
    return cluster.ended(task_id)
