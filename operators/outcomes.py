"""The outcome of each operator's result, pure: what the results hold is in the operators' docstrings."""

from collections.abc import Mapping, Sequence
from typing import Any

from logyard.admin.cluster.elections import UNCLEAN
from logyard.admin.quantities import plural, size
from logyard.admin.recovery.diagnosis import Finding
from logyard.operators.outcome import Outcome

Result = Mapping[str, Any]


# -- topics


def created(result: Result) -> Outcome:
    """Of CreateTopicOperator, AlterTopicOperator, and their dry runs."""
    topic = result["topic"]
    if result.get("missing"):
        return Outcome(f"Topic {topic} does not exist yet, so there was nothing to compare")
    changes = result["changes"]
    rows = [("set", key, value) for key, value in changes["set_configs"].items()]
    rows += [("unset", key, None) for key in changes["delete_configs"]]
    if changes["add_partitions_to"]:
        rows.append(("partitions", "to", changes["add_partitions_to"]))
    rows += [("not possible", text, None) for text in changes["refused"]]
    if changes["create"]:
        partitions = result.get("partitions")
        if partitions is None:
            planned = result.get("dry_run", False)
            return Outcome(f"Topic {topic} " + ("does not exist, it would be created" if planned else "was created"))
        placed = [(p["partition"], p["leader"], _brokers(p["replicas"])) for p in partitions]
        return Outcome(
            f"Topic {topic} was created with {plural(len(placed), 'partition')}",
            ("partition", "leader", "replicas"),
            placed,
        )
    if not rows:
        return Outcome(f"Topic {topic} was as wanted already, nothing changed")
    return Outcome(f"Topic {topic}: {plural(len(rows), 'difference')}", ("change", "what", "value"), rows)


def partitions_added(result: Result) -> Outcome:
    """Of AddPartitionsOperator."""
    topic = result["topic"]
    if result.get("missing"):
        return Outcome(f"Topic {topic} does not exist yet, so there was nothing to compare")
    before, after = result["before"], result["after"]
    if before == after:
        return Outcome(f"Topic {topic} has {plural(after, 'partition')} already, none was added")
    if result.get("dry_run"):
        return Outcome(f"Topic {topic} has {plural(before, 'partition')}, and would have {after}")
    return Outcome(f"Topic {topic}: {before} → {plural(after, 'partition')}")


def deleted(result: Result) -> Outcome:
    """Of DeleteTopicOperator."""
    if result.get("wanted") is False:
        return Outcome(f"Topic {result['topic']} stays: it was not to be deleted")
    made = "would be deleted" if result.get("dry_run") else "was deleted"
    return Outcome(f"Topic {result['topic']} {made if result['deleted'] else 'was not there'}")


def records_deleted(result: Result) -> Outcome:
    """Of DeleteRecordsOperator."""
    starts, topic = result["log_start_offsets"], result["topic"]
    if not starts:
        return Outcome(f"Topic {topic}: no records were to be deleted")
    rows = [(f"{topic}-{partition}", offset) for partition, offset in starts.items()]
    gone = f"{plural(result['records'], 'record')} of {plural(len(rows), 'partition')}"
    made = "would be deleted" if result.get("dry_run") else "deleted"
    return Outcome(f"Topic {topic}: {gone} {made}", ("partition", "first offset"), rows)


def topics_planned(result: Result) -> Outcome:
    """Of PlanTopicsOperator."""
    if result["empty"]:
        return Outcome("The topics are as the file wants them, nothing is to do")
    said = plural(len(result["actions"]), "change")
    deletes = plural(len(result["deletes"]), "topic")
    return Outcome(f"{said} to make, {deletes} to delete", ("difference",), _column(result["lines"]))


def topics_applied(result: Result) -> Outcome:
    """Of ApplyTopicsOperator."""
    verb = "to change" if result["dry_run"] else "changed"
    rows = [("changed", name) for name in result["changed"]] + [("deleted", name) for name in result["deleted"]]
    rows += [("right or quota", text) for text in result["rights"]]
    rows += [("not done", text) for text in result["refused"]]
    said = f"{plural(len(result['changed']), 'topic')} {verb}, {len(result['deleted'])} deleted"
    if result["rights"]:
        said += f", {plural(len(result['rights']), 'right or quota', 'rights and quotas')}"
    left = f", {len(result['refused'])} differences stay" if result["refused"] else ""
    return Outcome(said + left, ("what", "topic"), rows)


def retained(result: Result) -> Outcome:
    """Of RetentionReportOperator."""
    rows = [
        (t["topic"], t["policy"], size(t["bytes_all"]), t["records"], t["overdue"], "; ".join(t["findings"]) or None)
        for t in result["topics"]
    ]
    found = len(result["findings"])
    return Outcome(
        f"{plural(len(rows), 'topic')} with {plural(result['records'], 'record')} in {size(result['bytes'])}, "
        f"{plural(found, 'topic')} with findings",
        ("topic", "policy", "size", "records", "past retention", "findings"),
        rows,
    )


def chosen(result: Sequence[Sequence[str]]) -> Outcome:
    """Of ChooseCompactionOperator and BatchTopicsOperator."""
    topics, jobs = plural(sum(map(len, result)), "topic"), plural(len(result), "Spark job")
    rows = [(number, len(one), ", ".join(one)) for number, one in enumerate(result)]
    return Outcome(f"{topics} in {jobs}", ("job", "count", "topics"), rows)


# -- replicas


def planned(result: Result) -> Outcome:
    """Of PlanReassignmentOperator."""
    moves = result["partitions"]
    if not moves:
        return Outcome("The replicas are where the goals want them, nothing is to move")
    seconds = result.get("seconds_at_throttle")
    rate = f", at least {seconds:,.0f} s at the throttle" if seconds else ""
    rows = [
        (f"{m['topic']}-{m['partition']}", _brokers(m["from"]), _brokers(m["replicas"]), size(m["size"])) for m in moves
    ]
    return Outcome(
        f"{plural(len(moves), 'partition')} to change, {size(result['bytes_moved'])} to copy{rate}",
        ("partition", "from", "to", "size"),
        rows,
    )


def moved(result: Result) -> Outcome:
    """Of ExecuteReassignmentOperator and DecommissionBrokerOperator."""
    if result.get("dry_run"):
        to_do = result["to_do"]
        said = f"{plural(len(to_do), 'partition')} to move" if to_do else "Every replica is as planned already"
        return Outcome(said, ("first wave",), _column(result["first_wave"]))
    gone = f", {len(result['lost'])} no longer exist" if result["lost"] else ""
    ending = ""
    if result.get("empty"):
        ending = f"; brokers {_brokers(result['brokers'])} are empty"
        ending += f", and {_brokers(result['stopped'])} were stopped" if result["stopped"] else ""
    rows = [(name, result["leaders"].get(name)) for name in result["moved"]]
    return Outcome(
        f"{plural(len(rows), 'partition')} moved in {result['seconds']:,.1f} s{gone}{ending}",
        ("partition", "leader"),
        rows,
    )


def verified(result: Result) -> Outcome:
    """Of VerifyReassignmentOperator."""
    gone = f", {len(result['lost'])} no longer exist" if result["lost"] else ""
    throttles = plural(result["throttles_ended"], "throttle") + " ended"
    return Outcome(f"{plural(result['as_planned'], 'partition')} as planned{gone}, {throttles}")


def cancelled(result: Result) -> Outcome:
    """Of CancelReassignmentOperator."""
    verb = "to cancel" if result["dry_run"] else "cancelled"
    rows: list[tuple[str, str, str | None]]
    rows = [(f"{m['topic']}-{m['partition']}", verb, _brokers(m["replicas"])) for m in result["cancelled"]]
    rows += [(name, f"not cancelled: {reason}", None) for name, reason in result["kept"].items()]
    removed = result["throttles_removed"]
    ended = f", {plural(len(removed), 'throttle')} removed" if removed else ""
    said = f"{plural(len(result['cancelled']), 'move')} {verb}" if rows else "No replica was moving"
    return Outcome(said + ended, ("partition", "what", "back to"), rows)


def elected(result: Result) -> Outcome:
    """Of ElectLeadersOperator."""
    if "would_elect" in result:
        wanted = result["would_elect"]
        return Outcome(f"{plural(len(wanted), 'leader')} to elect", ("partition",), _column(wanted))
    if result.get("planned") == 0:
        return Outcome("The plan has no partitions, so no leader was elected")
    if not result["elected"]:
        well = "partition has a leader" if result["kind"] == UNCLEAN else "leader is the preferred one"
        return Outcome(f"Every {well} already, none was elected")
    return Outcome(f"{plural(len(result['elected']), 'leader')} elected", ("partition",), _column(result["elected"]))


# -- groups, transactions, the controller


def offsets_reset(result: Result) -> Outcome:
    """Of ResetOffsetsOperator."""
    rows = [(name, change["before"], change["after"]) for name, change in result["changed"].items()]
    if not rows:
        return Outcome(f"Group {result['group']}: every offset is as wanted already")
    verb = "to change" if result["dry_run"] else "changed"
    return Outcome(
        f"Group {result['group']}: {plural(len(rows), 'committed offset')} {verb}",
        ("partition", "before", "after"),
        rows,
    )


def groups_deleted(result: Result) -> Outcome:
    """Of DeleteGroupsOperator."""
    rows = [(one["group"], one["offsets"]) for one in result["deleted"]]
    if not rows:
        return Outcome("None of these groups exists")
    verb = "to delete" if result["dry_run"] else "deleted"
    absent = f"; not there: {', '.join(result['missing'])}" if result["missing"] else ""
    return Outcome(f"{plural(len(rows), 'group')} {verb}{absent}", ("group", "committed offsets"), rows)


def hanging(result: Result) -> Outcome:
    """Of AbortHangingTransactionsOperator."""
    found = result["hanging"]
    if not found:
        return Outcome("No transaction hangs")
    rows = [(f"{one['topic']}-{one['partition']}", one["start_offset"], str(one["producer_id"])) for one in found]
    verb = "found" if result["dry_run"] else "ended"
    return Outcome(
        f"{plural(len(found), 'hanging transaction')} {verb}",
        ("partition", "from offset", "producer"),
        rows,
    )


def recovered(result: Result) -> Outcome:
    """Of RecoverControllerOperator."""
    finding = Finding[result["finding"]]
    led = f"{result['partitions_led']:,} of {plural(result['partitions'], 'partition')} led"
    less = f", {result['under_replicated']} under-replicated" if result["under_replicated"] else ""
    missing = f", brokers {_brokers(result['missing'])} are missing" if result["missing"] else ""
    if not result["actions"]:
        state = "Nothing was done" if finding is Finding.HEALTHY and not missing else "Found"
        said = f"{state}: {finding.value}; controller {result['controller_after']}, {led}{less}{missing}"
    else:
        said = (
            f"Recovered in {result['seconds']:,.1f} s ({finding.value}): controller {result['controller_after']} at "
            f"epoch {result['epoch_after']}, {led}{less}{missing}"
        )
    rows = [("done", text) for text in result["actions"]] + [("left out", text) for text in result["withheld"]]
    return Outcome(said, ("step", "what"), rows)


def _column(values: Sequence[Any]) -> list[tuple[Any]]:
    return [(value,) for value in values]


def _brokers(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


# -- rights


def acls_created(result: Result) -> Outcome:
    """Of CreateAclsOperator."""
    made = "would be added" if result["dry_run"] else "added"
    return Outcome(
        f"{plural(len(result['created']), 'ACL')} {made}, {result['existing']} there already", *_acls(result["created"])
    )


def acls_deleted(result: Result) -> Outcome:
    """Of DeleteAclsOperator."""
    made = "would be removed" if result["dry_run"] else "removed"
    return Outcome(f"{plural(len(result['deleted']), 'ACL')} {made}", *_acls(result["deleted"]))


def _acls(found: Sequence[Mapping[str, str]]) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    fixed = ("pattern", "principal", "operation", "host", "permission")
    rows = []
    for one in found:
        key = next(key for key in one if key not in fixed)
        name = f"{one[key]}*" if one["pattern"] == "PREFIXED" else one[key]
        rows.append((one["permission"], one["principal"], one["operation"], f"{key} {name}", one["host"]))
    return ("permission", "principal", "operation", "on", "host"), rows


def user_set(result: Result) -> Outcome:
    """Of SetUserOperator."""
    if result.get("skipped"):
        return Outcome(f"No password was to be set for user {result['user']}, nothing changed")
    user, done = result["user"], ", ".join(result["set"])
    if not done:
        return Outcome(f"User {user} could log in already, nothing changed")
    made = "would get" if result["dry_run"] else "got"
    return Outcome(f"User {user} {made} {'a new' if result['existed'] else 'a'} password for {done}")


def user_deleted(result: Result) -> Outcome:
    """Of DeleteUserOperator."""
    if result.get("skipped"):
        return Outcome(f"User {result['user']} stays: it was not to be deleted")
    user, gone = result["user"], ", ".join(result["deleted"])
    if not gone:
        return Outcome(f"User {user} has no SCRAM credentials, nothing changed")
    return Outcome(f"User {user} {'would lose' if result['dry_run'] else 'lost'} {gone}")


def quotas_set(result: Result) -> Outcome:
    """Of SetQuotasOperator."""
    rows = [("set", one["of"], one["key"], one["value"]) for one in result["set"]]
    rows += [("removed", one["of"], one["key"], one["value"]) for one in result["removed"]]
    if not rows:
        return Outcome("Quotas were as wanted already, nothing changed")
    made = "would change" if result["dry_run"] else "changed"
    return Outcome(f"{plural(len(rows), 'limit')} {made}", ("change", "of", "limit", "value"), rows)


def broker_settings_altered(result: Result) -> Outcome:
    """Of AlterBrokerSettingsOperator."""
    of = "all brokers" if result["broker"] == "default" else f"broker {result['broker']}"
    before = result["before"]
    rows = [("set", name, before[name], value) for name, value in result["set"].items()]
    rows += [("unset", name, before[name], None) for name in result["unset"]]
    if not rows:
        return Outcome(f"The settings of {of} were as wanted already, nothing changed")
    made = "would change" if result["dry_run"] else "changed"
    said = f"{plural(len(rows), 'setting')} of {of} {made}"
    return Outcome(said, ("change", "setting", "before", "after"), rows)


# -- records


def produced(result: Result) -> Outcome:
    """Of ProduceToTopicOperator."""
    verb = "to write to" if result["dry_run"] else "written to"
    said = f"{plural(result['records'], 'record')} ({size(result['bytes'])}) {verb} {result['topic']}"
    rows = [(f"{result['topic']}-{p}", found["start"], found["end"]) for p, found in result["offsets"].items()]
    return Outcome(said, ("partition", "from offset", "to"), rows)


def copied(result: Result) -> Outcome:
    """Of CopyRecordsOperator."""
    verb = "to copy" if result["dry_run"] else "copied"
    said = f"{plural(result['records'], 'record')} ({size(result['bytes'])}) {verb} from {result['topic']} to "
    there = f" of {result['to_cluster']}" if result["to_cluster"] else ""
    said += f"{result['to_topic']}{there}; {result['looked_at']:,} looked at"
    rows = [(f"{result['to_topic']}-{p}", found["start"], found["end"] - 1) for p, found in result["offsets"].items()]
    return Outcome(said, ("partition", "first offset", "last offset"), rows)


def consumed(result: Result) -> Outcome:
    """Of ConsumeFromTopicOperator."""
    rows = [(name, found["start"], found["end"]) for name, found in result["offsets"].items()]
    columns = ("partition", "from offset", "to")
    if result["dry_run"]:
        said = f"Group {result['group']}: {plural(len(rows), 'partition')} with records to read"
        return Outcome(said, columns, rows)
    after = "and committed" if result["committed"] else "nothing committed"
    said = f"Group {result['group']}: {plural(result['records'], 'record')} read, {after}"
    if result["undecoded"]:
        said += f"; {result['undecoded']} could not be decoded"
    return Outcome(said, columns, rows)


def committed(result: Result) -> Outcome:
    """Of CommitOffsetsOperator."""
    verb = "to commit" if result["dry_run"] else "committed"
    rows = [(name, verb, offset) for name, offset in result["committed"].items()]
    rows += [(name, "committed before", offset) for name, offset in result["already"].items()]
    said = f"Group {result['group']}: {plural(len(result['committed']), 'offset')} {verb}"
    return Outcome(said, ("partition", "what", "offset"), rows)
