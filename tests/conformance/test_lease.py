"""One owner at a time, and what fences the one before, on each database."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from sqlalchemy import insert, select, update

from tests.databases import opened
from tideshift.config import FAST
from tideshift.errors import AmbiguousCommit, StateChanged
from tideshift.store import points
from tideshift.store.lease import Lease, Tenure, hold_to_commit, tenure_guard
from tideshift.store.tables import event, owner_lease

BEYOND_LEASE_SECONDS = FAST.lease_seconds + 0.001


@pytest.fixture
def ann(stepped):
    """One that would be owner."""
    return Lease(stepped, holder="ann")


@pytest.fixture
def bob(stepped):
    """Another one."""
    return Lease(stepped, holder="bob")


def rows_moved_by(database, tenure):
    """Take an owner's move: an UPDATE that names the tenure."""
    with database.transaction() as tx:
        return tx.execute(update(event).where(event.c.id == 1, tenure_guard(tenure, tx)).values(kind="moved")).rowcount


@pytest.fixture
def one_event(stepped):
    """A row for an owner to move."""
    with stepped.transaction() as tx:
        tx.execute(insert(event).values(at=0, actor="a", kind="k"))


def test_the_first_gets_it_and_the_second_does_not(ann, bob):
    """Of two that ask, one becomes the owner."""
    assert ann.acquire() == Tenure("owner", "ann", 1)
    assert bob.acquire() is None
    assert ann.acquire() is None


def test_leases_of_other_names_are_apart(stepped, ann):
    """A lease concerns its own name only."""
    ann.acquire()

    assert Lease(stepped, name="other", holder="bob").acquire() == Tenure("other", "bob", 1)


def test_a_renewed_lease_lasts(ann, bob, clock):
    """As long as the owner renews in time nobody else gets it, and the tenure stays the same."""
    tenure = ann.acquire()

    for _ in range(5):
        clock.advance(FAST.heartbeat_seconds)
        assert ann.renew(tenure)
        assert bob.acquire() is None


def test_an_expired_lease_is_taken_with_the_next_number(ann, bob, clock):
    """After its time by the database's clock the lease goes to whoever asks, as a new tenure."""
    old = ann.acquire()
    clock.advance(BEYOND_LEASE_SECONDS)

    assert bob.acquire() == Tenure("owner", "bob", 2)

    assert not ann.renew(old)
    assert not ann.resign(old)
    assert ann.acquire() is None


def test_the_lease_lasts_to_its_very_end(ann, bob, clock):
    """A moment before its time is over nobody gets it."""
    ann.acquire()
    clock.advance(FAST.lease_seconds - 0.001)

    assert bob.acquire() is None


def test_an_expired_lease_is_not_renewed_but_taken_anew(ann, clock):
    """A tenure is unbroken: who was late gets a new number, even when nobody came in between."""
    old = ann.acquire()
    clock.advance(BEYOND_LEASE_SECONDS)

    assert not ann.renew(old)
    assert ann.acquire() == Tenure("owner", "ann", 2)


def test_a_resigned_lease_is_free_at_once(ann, bob):
    """Whoever resigns lets the next one in without waiting, and believes in nothing any more."""
    tenure = ann.acquire()

    assert ann.resign(tenure)
    assert not ann.holds(tenure)
    assert not ann.resign(tenure)
    assert bob.acquire() == Tenure("owner", "bob", 2)


def test_an_owner_trusts_its_renewal_for_less_than_the_lease(ann, clock):
    """Without asking the database a holder believes only for the trust window, and a renewal begins it again."""
    tenure = ann.acquire()
    assert ann.holds(tenure)

    clock.advance(FAST.trust_seconds - 0.001)
    assert ann.holds(tenure)
    clock.advance(0.001)
    assert not ann.holds(tenure)
    assert ann.renew(tenure)
    assert ann.holds(tenure)


def test_trust_is_counted_from_before_the_renewal_was_sent(ann, clock, failpoints):
    """A renewal whose answer took long is not believed from its answer on."""
    tenure = ann.acquire()
    failpoints.enable(points.AFTER_COMMIT, call=lambda **_: clock.advance(FAST.trust_seconds))

    assert ann.renew(tenure)

    assert not ann.holds(tenure)


def test_a_tenure_of_another_is_not_believed(ann):
    """A holder believes in its own latest tenure only."""
    tenure = ann.acquire()

    assert not ann.holds(Tenure("owner", "ann", tenure.number + 1))
    assert not ann.holds(Tenure("owner", "bob", tenure.number))


def test_a_deposed_owner_moves_nothing(stepped, ann, bob, clock, one_event):
    """A move that names an old tenure finds no row, though its owner has not noticed yet."""
    old = ann.acquire()
    assert rows_moved_by(stepped, old) == 1
    clock.advance(BEYOND_LEASE_SECONDS)

    new = bob.acquire()

    assert rows_moved_by(stepped, old) == 0
    assert rows_moved_by(stepped, new) == 1


def test_an_expired_owner_moves_nothing(stepped, ann, clock, one_event):
    """The guard knows the expiry by the database's time, before anybody has taken over."""
    tenure = ann.acquire()
    clock.advance(BEYOND_LEASE_SECONDS)

    assert rows_moved_by(stepped, tenure) == 0


@pytest.mark.parametrize("wrong", [Tenure("other", "ann", 1), Tenure("owner", "bob", 1), Tenure("owner", "ann", 2)])
def test_the_guard_looks_at_name_owner_and_number(stepped, ann, one_event, wrong):
    """Each part of the tenure has to match."""
    ann.acquire()

    assert rows_moved_by(stepped, wrong) == 0


def test_of_two_takers_at_once_one_wins(database_url, stepped, ann, clock):
    """However many take over an expired lease at the same moment, there is one new owner."""
    ann.acquire()
    clock.advance(BEYOND_LEASE_SECONDS)
    barrier = threading.Barrier(3)
    tenures = []

    def take(holder):
        with opened(database_url, clock) as database:
            lease = Lease(database, holder=holder)
            barrier.wait()
            tenures.append(lease.acquire())

    threads = [threading.Thread(target=take, args=(f"taker-{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (won,) = [tenure for tenure in tenures if tenure is not None]
    assert won.number == 2
    with stepped.transaction() as tx:
        assert tx.execute(select(owner_lease.c.owner_id)).scalar_one() == won.owner_id


def test_of_two_first_ones_at_once_one_wins(database_url, stepped, clock):
    """The very first tenure is given once too."""
    barrier = threading.Barrier(2)
    tenures = []

    def take(holder):
        with opened(database_url, clock) as database:
            lease = Lease(database, holder=holder)
            barrier.wait()
            tenures.append(lease.acquire())

    threads = [threading.Thread(target=take, args=(f"taker-{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len([tenure for tenure in tenures if tenure is not None]) == 1


def test_a_renewal_that_comes_between_stops_the_taker(stepped, ann, bob, clock, failpoints):
    """What a taker saw expired may be renewed before it writes; then it takes nothing."""
    old = ann.acquire()
    clock.advance(BEYOND_LEASE_SECONDS)
    with stepped.transaction() as tx:
        now_ms = tx.now_ms()

    def renew_between(**_):
        failpoints.disable(points.AFTER_COMMIT)
        with stepped.transaction() as tx:
            tx.execute(update(owner_lease).values(expires_at=now_ms + 1000))

    failpoints.enable(points.AFTER_COMMIT, call=renew_between)

    assert bob.acquire() is None
    with stepped.transaction() as tx:
        assert tx.execute(select(owner_lease.c.tenure)).scalar_one() == old.number


def test_an_ambiguous_acquisition_is_not_believed(ann, failpoints):
    """When the answer is lost nobody believes to be owner; the lease runs out by itself."""
    failpoints.enable(points.COMMIT_ANSWER_LOST, "1*return(true)")

    with pytest.raises(AmbiguousCommit):
        ann.acquire()

    assert not ann.holds(Tenure("owner", "ann", 1))


def test_the_row_names_the_sessions_to_end(stepped, ann, bob, clock):
    """Acquiring and renewing write down the sessions in which the owner works; resigning forgets them."""

    def written():
        with stepped.transaction() as tx:
            return tx.execute(select(owner_lease.c.session)).scalar_one()

    with stepped.session() as session:
        identity = session.identity

    tenure = ann.acquire(sessions=[identity])
    assert written() == [identity.as_record()]
    ann.renew(tenure)
    assert written() == [identity.as_record()]
    ann.renew(tenure, sessions=[])
    assert written() is None
    ann.renew(tenure, sessions=[identity])
    ann.resign(tenure)
    assert written() is None


def test_a_frozen_owner_is_ended_before_the_next_begins(stepped, ann, bob, clock, one_event):
    """Where sessions can be ended, one that is frozen in a transaction, its lease row locked, cannot commit any more."""
    if not stepped.driver.capabilities.ends_sessions:
        pytest.skip("this database has no sessions that can be ended")
    with stepped.session() as frozen:
        old = ann.acquire(sessions=[frozen.identity])
        with pytest.raises(AmbiguousCommit), frozen.transaction() as tx:  # noqa: PT012
            tx.execute(update(event).values(kind="frozen"))
            tx.execute(update(owner_lease).values(expires_at=owner_lease.c.expires_at))
            clock.advance(BEYOND_LEASE_SECONDS)

            new = bob.acquire()

            assert new == Tenure("owner", "bob", 2)
            with stepped.transaction() as other:
                assert stepped.driver.session_gone(other.connection, frozen.identity)

    assert rows_moved_by(stepped, old) == 0
    with stepped.transaction() as tx:
        assert tx.execute(select(event.c.kind)).scalar_one() == "k"


def test_an_owner_whose_process_ended_is_succeeded_at_once(stepped, ann, bob):
    """Where a session is its process, nobody waits for the expiry of one that is known dead; a living one keeps it."""
    if not stepped.driver.capabilities.session_is_process:
        pytest.skip("a session of this database is no process of this host")
    with stepped.session() as session:
        living = session.identity
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead = replace(living, backend=str(child.pid))

    old = ann.acquire(sessions=[living, dead])
    assert bob.acquire() is None
    ann.renew(old, sessions=[dead])

    assert bob.acquire() == Tenure("owner", "bob", 2)
    assert not ann.renew(old)


def test_a_long_transaction_holds_the_lease_to_its_commit(stepped, ann, bob, clock, one_event):
    """The work took longer than the lease, and nobody took over: it counts, and the lease is good again for its time."""
    tenure = ann.acquire()
    with stepped.transaction() as tx:
        tx.execute(insert(event).values(at=0, actor="a", kind="long work"))
        clock.advance(10 * BEYOND_LEASE_SECONDS)
        hold_to_commit(tx, tenure)
        assert tx.execute(update(event).where(event.c.id == 1, tenure_guard(tenure, tx)).values(kind="moved")).rowcount == 1

    assert bob.acquire() is None
    assert ann.renew(tenure)


def test_nobody_holds_a_lease_that_went_to_another(stepped, ann, bob, clock):
    """Whoever was succeeded holds nothing, and what its transaction did is taken back."""
    old = ann.acquire()
    clock.advance(BEYOND_LEASE_SECONDS)
    new = bob.acquire()

    with pytest.raises(StateChanged), stepped.transaction() as tx:  # noqa: PT012
        tx.execute(insert(event).values(at=0, actor="a", kind="late work"))
        hold_to_commit(tx, old)

    with stepped.transaction() as tx:
        assert tx.execute(select(event.c.id)).all() == []
    assert bob.renew(new)
