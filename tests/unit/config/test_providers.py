"""Config providers: values out of files, folders and the environment; the cases of Kafka's ConfigTransformerTest,
FileConfigProviderTest, DirectoryConfigProviderTest and EnvVarConfigProviderTest that a broker's settings have."""

import re
from pathlib import Path

import pytest

from logyard.broker.__main__ import main
from logyard.broker.config.providers import Sources, resolved

CLASS = "org.apache.kafka.common.config.provider"
OWN = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{CLASS}.FileConfigProvider",
    "config.providers.dir.class": f"{CLASS}.DirectoryConfigProvider",
    "config.providers.env.class": f"{CLASS}.EnvVarConfigProvider",
}
FILES = {
    "/run/kafka.properties": "store = s3:cret\nkey=k=1\n",
    "/run/secrets/password": "swordfish",
    "/run/secrets/lines": "one\ntwo\n",
}


def read(path: str) -> str:
    try:
        return FILES[path]
    except KeyError:
        raise FileNotFoundError(2, "No such file or directory") from None


def of(value: str, **more: str) -> str:
    given = {**OWN, **{name.replace("_", "."): text for name, text in more.items()}, "ssl.key.password": value}
    found = resolved(given, Sources(read, {"PASSWORD": "abc", "OTHER": "x"}))
    assert list(found) == ["ssl.key.password"]
    return found["ssl.key.password"]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("${file:/run/kafka.properties:store}", "s3:cret"),
        ("${file:/run/../run/kafka.properties:key}", "k=1"),
        ("${dir:/run/secrets:password}", "swordfish"),
        ("${dir:/run/secrets:lines}", "one\ntwo\n"),
        ("${env:PASSWORD}", "abc"),
        (
            'Module required a="${env:PASSWORD}" b="${dir:/run/secrets:password}";',
            'Module required a="abc" b="swordfish";',
        ),
        ("${vault:/a:b}", "${vault:/a:b}"),
        ("RULE:(.*)/$1/${", "RULE:(.*)/$1/${"),
        ("plain", "plain"),
    ],
)
def test_values(value: str, meant: str) -> None:
    assert of(value) == meant


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("${file:/run/kafka.properties:none}", "the file has no such key"),
        ("${file:/nowhere:key}", "cannot be read (No such file"),
        ("${file:key}", "cannot be read"),
        ("${dir:/run/secrets:none}", "cannot be read"),
        ("${dir:/run/secrets:../kafka.properties}", "the name of a file"),
        ("${env:NONE}", "no such variable"),
        ("${env:/path:PASSWORD}", "no such variable"),
    ],
)
def test_what_is_not_there_is_no_value(value: str, why: str) -> None:
    """Of a missing key or variable Kafka takes the text itself: a password that everybody can read in the file."""
    with pytest.raises(ValueError, match=rf"^ssl\.key\.password: .*{re.escape(why)}"):
        of(value)


def test_bounds() -> None:
    paths = {
        "config_providers_file_param_allowed_paths": "/etc, /run/secrets/",
        "config_providers_dir_param_allowed_paths": "/run",
    }
    with pytest.raises(ValueError, match=r"not below allowed\.paths"):
        of("${file:/run/kafka.properties:store}", **paths)
    with pytest.raises(ValueError, match=r"not below allowed\.paths"):
        of("${file:/etc/../run/kafka.properties:store}", **paths)
    assert of("${dir:/run/secrets:password}", **paths) == "swordfish"
    assert of("${dir:/run/secrets:password}", config_providers_dir_param_allowed_paths="/") == "swordfish"
    names = {"config_providers_env_param_allowlist_pattern": "PASS.*"}
    assert of("${env:PASSWORD}", **names) == "abc"
    with pytest.raises(ValueError, match="not allowed"):
        of("${env:OTHER}", **names)


def test_other_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"config\.providers\.env\.class: FileConfigProvider, Dir"):
        of("x", config_providers_env_class="com.example.Vault")
    with pytest.raises(ValueError, match=r"config\.providers\.vault\.class"):
        resolved({"config.providers": "vault"}, Sources(read, {}))


def test_a_broker_reads_them_at_its_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "id").write_text("not-a-number")
    lines = {**OWN, "broker.id": f"${{dir:{tmp_path}:id}}", "zookeeper.connect": "${env:NO_SUCH_VARIABLE}"}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    assert main(["--config", str(file)]) == 1
    assert "zookeeper.connect: ${env:NO_SUCH_VARIABLE}: there is no such variable" in capsys.readouterr().err
    assert main(["--config", str(file), "--override", "zookeeper.connect=localhost:1"]) == 1
    assert "not-a-number" in capsys.readouterr().err
