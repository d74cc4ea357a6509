from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import boxengine
from boxengine.errors import ConfigurationError
from tests.unit.settings.folder import Folder

SECTIONS = """
    default: &default
      bucket_size: 16
      outbox_items:
        order_item:
          transports: {log: }
    development:
      <<: *default
    test:
      <<: *default
      bucket_size: 2
    review:
      <<: *default
      bucket_size: 4
"""


def test_config_outbox_yml_is_found_before_outbox_yml(folder: Folder) -> None:
    folder.write("bucket_size: 2")
    folder.write("bucket_size: 3", "config/outbox.yml")
    assert folder.load().bucket_size == 3


def test_the_environment_variable_names_files_in_order(folder: Folder) -> None:
    folder.write("bucket_size: 2\nowner: first", "a.yml")
    folder.write("bucket_size: 3", "b.yml")
    folder.environ["BOXENGINE_CONFIG"] = "a.yml:b.yml"
    settings = folder.load()
    assert (settings.bucket_size, settings.owner) == (3, "first")


def test_files_given_go_before_the_environment_variable(folder: Folder) -> None:
    folder.write("bucket_size: 2", "a.yml")
    folder.environ["BOXENGINE_CONFIG"] = "missing.yml"
    assert folder.load("a.yml").bucket_size == 2


def test_where_there_is_no_file_the_error_says_where_it_looked_and_what_to_do(folder: Folder) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.load()
    text = str(caught.value)
    assert text.startswith("no configuration found; looked for config/outbox.yml and outbox.yml in ")
    assert str(folder.path) in text
    assert "boxengine init" in text


def test_each_missing_file_is_reported(folder: Folder) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.load("a.yml", "b.yml")
    assert [problem.file for problem in caught.value.problems] == ["a.yml", "b.yml"]


def test_mappings_are_merged_deeply_and_lists_replaced(folder: Folder) -> None:
    folder.write(
        """
        poller: {rate_limit: 1, concurrency: 2}
        outbox_items:
          order_item: {max_retries: 1, retry_strategies: [no_delay, latest_available], transports: {log: {level: debug}}}
        """,
        "a.yml",
    )
    folder.write(
        """
        poller: {rate_limit: 5}
        outbox_items:
          order_item: {retry_strategies: [no_delay]}
          other_item: {transports: {log: }}
        """,
        "b.yml",
    )
    settings = folder.load("a.yml", "b.yml")
    assert (settings.poller.rate_limit, settings.poller.concurrency) == (5, 2)
    order = settings.outbox_items["order_item"]
    assert (order.max_retries, order.retry_strategies) == (1, ("no_delay",))
    assert order.transports["log"].arguments == {"level": "debug"}
    assert list(settings.boxes) == ["order_item", "other_item"]


@pytest.mark.parametrize("time", ["12:30", "1:30", "12:30:15.5"])
def test_a_time_of_day_that_yaml_reads_as_a_number_is_refused(folder: Folder, time: str) -> None:
    text = "poller:\n  general_timeout: {}\noutbox_items: {{a_item: {{table: {}}}}}\n"
    problems = folder.problems(text.format(time, time))
    message = "in line {} is a number to base 60 to YAML; put it in quotes"
    assert problems == {
        "poller.general_timeout": f"{time} {message.format(2)}",
        "outbox_items.a_item.table": f"{time} {message.format(3)}",
    }
    assert folder.settings(f"outbox_items: {{a_item: {{table: '{time}'}}}}").outbox_items["a_item"].table == time


def test_a_key_without_a_value_takes_nothing_back_of_an_earlier_file(folder: Folder) -> None:
    folder.write(
        "poller: {rate_limit: 1}\noutbox_items: {a_item: {owner: me, transports: {log: {level: debug}}}}", "a.yml"
    )
    folder.write("poller:\noutbox_items: {a_item: {owner: , transports: {log: }}}\nredis:", "b.yml")
    folder.write("outbox_items:", "c.yml")
    settings = folder.load("a.yml", "b.yml", "c.yml")
    box = settings.outbox_items["a_item"]
    assert (settings.poller.rate_limit, box.owner) == (1, "me")
    assert box.transports["log"].arguments == {"level": "debug"}
    assert str(settings.origin.of(("poller", "rate_limit"))) == "a.yml"


@pytest.mark.parametrize(("environment", "buckets"), [(None, 16), ("test", 2), ("review", 4), ("default", 16)])
def test_the_environment_picks_its_section(folder: Folder, environment: str | None, buckets: int) -> None:
    folder.write(SECTIONS)
    if environment:
        folder.environ["BOXENGINE_ENV"] = environment
    settings = folder.load()
    assert settings.bucket_size == buckets
    assert list(settings.boxes) == ["order_item"]


def test_the_environment_given_goes_before_the_variable(folder: Folder) -> None:
    folder.write(SECTIONS)
    folder.environ["BOXENGINE_ENV"] = "review"
    assert folder.load(env="test").bucket_size == 2


def test_an_environment_that_no_file_has_is_refused_with_those_they_have(folder: Folder) -> None:
    folder.write(SECTIONS)
    with pytest.raises(
        ConfigurationError, match=r"no section for environment 'prod'.*default, development, test, review"
    ):
        folder.load(env="prod")


def test_a_file_without_sections_is_read_in_any_environment(folder: Folder) -> None:
    folder.write("bucket_size: 5")
    assert folder.load(env="production").bucket_size == 5


def test_a_file_that_lacks_the_section_adds_nothing_where_another_has_it(folder: Folder) -> None:
    folder.write(SECTIONS, "a.yml")
    folder.write("production: {bucket_size: 99}", "b.yml")
    assert folder.load("a.yml", "b.yml", env="test").bucket_size == 2


def test_a_key_beside_the_sections_is_refused(folder: Folder) -> None:
    assert "inside one of them" in folder.problems("owner: x\ndevelopment: {bucket_size: 2}")["owner"]


def test_a_misspelt_key_beside_the_sections_is_no_environment(folder: Folder) -> None:
    problems = folder.problems("outbox_item: {a_item: {}}\nqa: {}\ndevelopment: {bucket_size: 2}")
    assert list(problems) == ["outbox_item"]
    assert "did you mean outbox_items? expected inside one of the environment sections" in problems["outbox_item"]


def test_keys_that_begin_with_x_hold_anchors(folder: Folder) -> None:
    settings = folder.settings(
        """
        x-box: &box {max_retries: 7, transports: {log: }}
        outbox_items:
          a_item: {<<: *box}
          b_item: {<<: *box, max_retries: 8}
        """
    )
    assert [box.max_retries for box in settings.boxes.values()] == [7, 8]


def test_a_key_that_stands_twice_is_reported_with_both_lines_and_does_not_hide_other_mistakes(folder: Folder) -> None:
    problems = folder.problems("poller:\n  rate_limit: 1\n  rate_limit: 2\nowner: [x]\n")
    assert problems["poller.rate_limit"] == "stands twice, in lines 2 and 3; expected once"
    assert "owner" in problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not YAML: .*line"),
        ("- a\n- b", "expected a mapping"),
        ("a: !ruby/object:Set {}", "not YAML: could not determine a constructor"),
        ("<% if x %>\na: b: c", "ERB is not evaluated"),
        ("a: &a {b: *a}", "an alias that contains itself"),
        ("on: 1", "the key .on. in line 1 is not text"),
        ("a: 2024-13-45", "not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
    ],
)
def test_what_is_not_proper_yaml_is_said_plainly(folder: Folder, text: str, message: str) -> None:
    folder.write(text)
    with pytest.raises(ConfigurationError, match=message):
        folder.load()


def test_a_file_that_is_not_text_is_refused(folder: Folder) -> None:
    (folder.path / "outbox.yml").write_bytes(b"owner: \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8 text: byte 7"):
        folder.load()


def test_a_folder_in_place_of_a_file_is_refused(folder: Folder) -> None:
    (folder.path / "conf").mkdir()
    with pytest.raises(ConfigurationError, match="conf: cannot be read"):
        folder.load("conf")


def test_an_empty_file_is_a_configuration_of_defaults(folder: Folder) -> None:
    assert folder.settings("# nothing yet\n").boxes == {}


def test_a_file_outside_the_folder_is_named_in_full(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside: Path = tmp_path_factory.mktemp("elsewhere") / "x.yml"
    outside.write_text("bucket_size: 0")
    with pytest.raises(ConfigurationError) as caught:
        folder.load(str(outside))
    assert caught.value.problems[0].file == str(outside)


@pytest.mark.parametrize("load", [boxengine.load, boxengine.running], ids=["load", "running"])
def test_a_configuration_given_as_a_dict_is_not_taken_for_names_of_files(load: Any) -> None:
    with pytest.raises(TypeError, match="is read from files: give the path of one, or several paths, not a mapping"):
        load({"app": "shop", "outbox_items": {}})
