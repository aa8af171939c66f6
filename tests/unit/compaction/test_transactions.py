from logyard.broker.compaction.transactions import (
    ABORT_MARKER,
    COMMIT_MARKER,
    AbortedTransaction,
    Fate,
    TransactionFilter,
)


def test_data_of_an_aborted_transaction_goes_and_its_marker_stays_while_a_batch_is_there() -> None:
    judge = TransactionFilter([AbortedTransaction(7, 10, 12)])
    assert judge.data(7, 5) is Fate.RECORDS
    assert judge.data(7, 10) is Fate.ABORTED
    assert judge.data(8, 11) is Fate.RECORDS
    assert judge.marker(7, 12, ABORT_MARKER) is Fate.MARKER
    assert judge.data(7, 13) is Fate.RECORDS


def test_a_marker_without_batches_is_spent() -> None:
    judge = TransactionFilter([AbortedTransaction(7, 10, 12)])
    assert judge.marker(7, 12, ABORT_MARKER) is Fate.SPENT_MARKER
    assert judge.marker(7, 13, COMMIT_MARKER) is Fate.SPENT_MARKER
    assert judge.data(7, 14) is Fate.RECORDS
    assert judge.marker(7, 15, COMMIT_MARKER) is Fate.MARKER
    assert judge.marker(7, 16, COMMIT_MARKER) is Fate.SPENT_MARKER


def test_an_entry_whose_marker_is_gone_does_not_abort_the_next_transaction() -> None:
    judge = TransactionFilter([AbortedTransaction(7, 10, 12), AbortedTransaction(7, 30, 32)])
    assert judge.data(7, 20) is Fate.RECORDS
    assert judge.marker(7, 21, COMMIT_MARKER) is Fate.MARKER
    assert judge.data(7, 30) is Fate.ABORTED
    assert judge.marker(7, 32, ABORT_MARKER) is Fate.MARKER


def test_empty_and_unknown_markers() -> None:
    judge = TransactionFilter([])
    assert judge.marker(7, 1, None) is Fate.SPENT_MARKER
    assert judge.marker(7, 2, 9) is Fate.MARKER
