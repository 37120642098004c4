from __future__ import annotations

import datetime as dt
import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.config import Config, FeatureConfig, load_config
from recsys_cg.data.inspection import inspect_sources, render_config
from recsys_cg.data.inspection.glimpse import look
from recsys_cg.errors import ConfigError, RecsysError, SourceError

START_S = 1_767_225_600
USERS = [f"{n % 13:03d}" for n in range(200)]
ITEMS = [f"ü{n % 40}" for n in range(200)]
ISO = [f"2026-01-{1 + n % 28:02d}T10:{n % 60:02d}:00Z" for n in range(200)]
SECONDS = [str(START_S + 60 * n) for n in range(200)]


def _write_csv(path: Path, columns: dict[str, list[str]], separator: str = ",") -> str:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join(separator.join(row) for row in [list(columns), *rows]) + "\n", encoding="utf-8")
    return str(path)


def _reload(text: str, folder: Path) -> Config:
    (folder / "project.toml").write_text(text, encoding="utf-8")
    return load_config(folder / "project.toml")


def _catalogue(path: Path, **columns: list[str]) -> str:
    ids = [f"ü{n}" for n in range(40)]
    return _write_csv(path, {"item_id": ids, **columns})


def test_columns_are_found_by_name_whatever_the_spelling(tmp_path: Path) -> None:
    path = _write_csv(
        tmp_path / "shop.csv",
        {"InvoiceNo": ["1"] * 200, "StockCode": ITEMS, "InvoiceDate": ISO, "CustomerID": USERS},
    )
    section = inspect_sources(path).interactions
    assert (section.user, section.item, section.time, section.time_unit) == (
        "CustomerID", "StockCode", "InvoiceDate", "iso8601",
    )  # fmt: skip


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_the_unit_of_time_is_told_by_magnitude(tmp_path: Path, unit: str, per_second: int) -> None:
    times = [str((START_S + n) * per_second) for n in range(200)]
    path = _write_csv(tmp_path / "e.tsv", {"user": USERS, "item": ITEMS, "ts": times}, "\t")
    assert inspect_sources(path).interactions.time_unit == unit


def test_a_time_without_a_telling_name_is_found_by_its_values(tmp_path: Path) -> None:
    path = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "item_id": ITEMS, "x": SECONDS, "n": ["5"] * 200})
    assert inspect_sources(path).interactions.time == "x"


def test_an_item_column_without_a_telling_name_is_found_in_the_catalogue(tmp_path: Path) -> None:
    events = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "code": ITEMS, "time": SECONDS, "shop": ["x"] * 200})
    items = _catalogue(tmp_path / "i.csv", title=[f"a thing number {n}" for n in range(40)])
    proposal = inspect_sources(events, items)
    assert proposal.interactions.item == "code"
    assert proposal.items is not None
    assert proposal.items.item == "item_id"
    with pytest.raises(ConfigError, match=r"which column is the item\? Give it with --item"):
        inspect_sources(events)


def test_unclear_columns_are_listed_with_samples_and_the_option(tmp_path: Path) -> None:
    path = _write_csv(tmp_path / "e.csv", {"a": USERS, "b": ITEMS, "when": ISO})
    with pytest.raises(ConfigError) as caught:
        inspect_sources(path, item="b")
    assert str(caught.value) == (
        f"{path}: which column is the user? Give it with --user COLUMN. The columns:\n  a: '000', '001', '002'"
    )
    section = inspect_sources(path, user="a", item="b").interactions
    assert (section.user, section.item, section.time) == ("a", "b", "when")


def test_two_columns_that_could_be_the_time_are_not_gambled_on(tmp_path: Path) -> None:
    path = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "item_id": ITEMS, "a": ISO, "b": ISO})
    with pytest.raises(ConfigError, match=r"which column is the time\?(?s:.*)  a: (?s:.*)  b: "):
        inspect_sources(path)
    assert inspect_sources(path, time="b").interactions.time == "b"


def test_a_time_in_another_notation_says_what_can_be_read(tmp_path: Path) -> None:
    path = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "item_id": ITEMS, "date": ["12/1/2010 8:26"] * 200})
    with pytest.raises(ConfigError, match=r"'date' is named like a time.*'12/1/2010 8:26'.*--time-unit.*--time"):
        inspect_sources(path)


def test_an_option_that_names_no_column_suggests_the_nearest(tmp_path: Path) -> None:
    path = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "item_id": ITEMS, "time": SECONDS})
    with pytest.raises(ConfigError, match=r"--user userid: .* no such column; did you mean 'user_id'\?"):
        inspect_sources(path, user="userid")


def test_event_types_returns_and_ratings_are_noticed(tmp_path: Path) -> None:
    path = _write_csv(
        tmp_path / "e.csv",
        {
            "user_id": USERS, "item_id": ITEMS, "time": SECONDS,
            "event_type": ["view", "buy"] * 100, "Quantity": ["1", "-2"] * 100,
        },
    )  # fmt: skip
    proposal = inspect_sources(path)
    assert proposal.interactions.event == "event_type"
    assert proposal.interactions.filters == ["Quantity > 0"]
    assert proposal.hints["event_weights"][0] == {"buy": 1.0, "view": 1.0}
    rated = _write_csv(
        tmp_path / "r.csv", {"user_id": USERS, "item_id": ITEMS, "time": SECONDS, "rating": ["1", "5"] * 100}
    )
    assert inspect_sources(rated).hints["filters"][0] == ["rating >= 4"]


def test_many_rows_without_a_user_raise_the_limit_of_rejects(tmp_path: Path) -> None:
    users = ["" if n % 10 == 0 else user for n, user in enumerate(USERS)]
    path = _write_csv(tmp_path / "e.csv", {"user_id": users, "item_id": ITEMS, "time": SECONDS})
    proposal = inspect_sources(path)
    assert proposal.settings["dataset.max_rejects"][0] == 0.15
    assert _reload(render_config(proposal), tmp_path).dataset.max_rejects == 0.15
    clean = _write_csv(tmp_path / "c.csv", {"user_id": USERS, "item_id": ITEMS, "time": SECONDS})
    assert not inspect_sources(clean).settings


def _features(events: Path, items: str) -> dict[str, FeatureConfig]:
    section = inspect_sources(str(events), items).items
    assert section is not None
    return {feature.source_column: feature for feature in section.features}


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return Path(_write_csv(tmp_path / "events.csv", {"user_id": USERS, "item_id": ITEMS, "timestamp": SECONDS}))


def test_kinds_of_content_are_told_by_values(tmp_path: Path, events: Path) -> None:
    words = ["red", "green", "blue", "small", "large", "old"]
    items = _catalogue(
        tmp_path / "items.csv",
        title=[f"{words[n % 6]} thing {words[n // 7]} edition {n}" for n in range(40)],
        Genres=["|".join(words[k] for k in range(6) if (n + 3) * 7 % (k + 2)) or "red" for n in range(40)],
        brand=[f"brand {n % 5}" for n in range(40)],
        price=["" if n == 3 else f"{n * 1.5:.2f}" for n in range(40)],
        stars=[str(n % 5) for n in range(40)],
        vector=[f'"[{n}.5, 1, 2]"' for n in range(40)],
        image=[f"https://pictures.example/{n}.jpg" for n in range(40)],
        ean=[f"X{n:013d}Y" for n in range(40)],
        language=["en"] * 40,
        released=[f"2020-01-{1 + n % 28:02d}" for n in range(40)],
        empty=[""] * 40,
    )
    found = _features(events, items)
    kinds = {column: (feature.kind, feature.separator, feature.dim) for column, feature in found.items()}
    assert kinds == {
        "title": ("text", None, None),
        "Genres": ("categorical", "|", None),
        "brand": ("categorical", None, None),
        "price": ("numeric", None, None),
        "stars": ("categorical", None, None),
        "vector": ("dense", None, 3),
    }
    proposal = inspect_sources(str(events), items)
    assert set(proposal.skipped) == {"image", "ean", "language", "released", "empty"}
    assert proposal.items is not None
    assert proposal.items.title == "title"
    assert found["Genres"].name == "genres"


def test_lists_of_parquet_are_categorical_or_dense(tmp_path: Path, events: Path) -> None:
    table = pa.table(
        {
            "item_id": [f"ü{n}" for n in range(40)],
            "tags": pa.array([["a", "b"][: n % 3] for n in range(40)]),
            "embedding": pa.array([[0.5, float(n), 1.0, 2.0] for n in range(40)], pa.list_(pa.float32(), 4)),
            "kind": pa.array(["x", "y"] * 20).dictionary_encode(),
            "is_new": pa.array([True, False] * 20),
        }
    )
    pq.write_table(table, tmp_path / "items.parquet")
    found = _features(events, str(tmp_path / "items.parquet"))
    assert {name: (feature.kind, feature.dim) for name, feature in found.items()} == {
        "tags": ("categorical", None),
        "embedding": ("dense", 4),
        "kind": ("categorical", None),
        "is_new": ("categorical", None),
    }


def test_commas_of_ordinary_titles_separate_nothing(tmp_path: Path, events: Path) -> None:
    items = _catalogue(tmp_path / "items.csv", name=[f'"Thing {n}, The other {n * 31}"' for n in range(40)])
    assert _features(events, items)["name"].kind == "text"
    volumes = _catalogue(tmp_path / "volumes.csv", name=[f'"Story {n // 2}, volume {n % 2}"' for n in range(40)])
    assert _features(events, volumes)["name"].kind == "text"


def test_availability_is_found_in_one_unit_only(tmp_path: Path, events: Path) -> None:
    stamps = [str((START_S + n) * 1000) for n in range(40)]
    items = _catalogue(tmp_path / "a.csv", available_from=stamps, validUntil=stamps)
    section = inspect_sources(str(events), items).items
    assert section is not None
    assert (section.available_from, section.available_until, section.time_unit) == (
        "available_from",
        "validUntil",
        "ms",
    )
    mixed = _catalogue(tmp_path / "b.csv", available_from=stamps, validUntil=ISO[:40])
    section = inspect_sources(str(events), mixed).items
    assert section is not None
    assert (section.available_from, section.available_until) == (None, None)


def test_a_log_can_be_its_own_catalogue(tmp_path: Path) -> None:
    path = _write_csv(
        tmp_path / "e.csv",
        {
            "user_id": USERS, "item_id": ITEMS, "time": SECONDS,
            "description": [f"a fine thing number {n % 40}" for n in range(200)],
            "basket": [str(n) for n in range(200)],
        },
    )  # fmt: skip
    proposal = inspect_sources(path, path)
    assert proposal.items is not None
    assert [feature.name for feature in proposal.items.features] == ["description"]
    assert proposal.skipped == {"basket": "differs between rows of one item"}


def test_every_commented_key_is_valid_and_holds_the_default(tmp_path: Path, events: Path) -> None:
    items = _catalogue(tmp_path / "items.csv", title=[f"thing {n} of many" for n in range(40)])
    proposal = inspect_sources(str(events), items)
    text = render_config(proposal)
    plain = _reload(text, tmp_path)
    without_impressions = re.sub(r"(?s)# \[impressions\].*?\n\n", "", text)
    uncommented = re.sub(r"(?m)^# ([a-z_]+ = )", r"\1", without_impressions)
    assert uncommented.count("\n# ") < without_impressions.count("\n# ")
    assert _reload(uncommented, tmp_path) == plain


def test_impressions_can_be_uncommented(tmp_path: Path, events: Path) -> None:
    text = render_config(inspect_sources(str(events)))
    block = re.search(r"(?s)# \[impressions\].*?\n\n", text)
    assert block is not None
    shown = re.sub(r"(?m)^# (\[impressions\]|[a-z_]+ = )", r"\1", block[0])
    config = _reload(text.replace(block[0], shown), tmp_path)
    assert config.impressions is not None
    assert config.impressions.user == "user_id"


def test_paths_are_relative_to_the_project_file_where_it_is_near(tmp_path: Path, events: Path) -> None:
    proposal = inspect_sources(str(events))
    (tmp_path / "near").mkdir()
    for folder in (tmp_path, tmp_path / "near"):
        text = render_config(proposal, relative_to=folder)
        assert str(tmp_path) not in text
        assert _reload(text, folder).interactions.path.endswith("events.csv")
        assert Path(_reload(text, folder).interactions.path).resolve() == events
    assert str(events) in render_config(proposal, relative_to=tmp_path / "a" / "b" / "c")


def test_hostile_names_and_values_cannot_break_the_file(tmp_path: Path) -> None:
    table = pa.table(
        {
            'user"\n\x7f]': ["a\n[x]\n", 'b"""'] * 50,
            "item = #": ["\x00\x7f", "日本, 'q'"] * 50,
            "time": pa.array([START_S + n for n in range(100)]),
            "event": ['x"y\n', "z]"] * 50,
        }
    )
    pq.write_table(table, tmp_path / "e.parquet")
    catalogue = pa.table(
        {"item = #": ["\x00\x7f", "日本, 'q'"], "con\nst": ["[gates]\nx = 1"] * 2, "1é": ["a b", "c d"]}
    )
    pq.write_table(catalogue, tmp_path / "i.parquet")
    proposal = inspect_sources(
        str(tmp_path / "e.parquet"), str(tmp_path / "i.parquet"), user='user"\n\x7f]', item="item = #"
    )
    config = _reload(render_config(proposal), tmp_path)
    assert config.interactions.user == 'user"\n\x7f]'
    assert config.items is not None
    assert config.items.item == "item = #"
    assert [feature.source_column for feature in config.items.features] == ["1é"]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "jsonl", "parquet", "avro", "inter"])
def test_every_format_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"events.{kind}"
    columns = {"user_id": USERS, "item_id": ITEMS, "timestamp": SECONDS}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if kind == "csv.gz":
        plain = Path(_write_csv(tmp_path / "plain.csv", columns))
        path.write_bytes(gzip.compress(plain.read_bytes()))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path)
    elif kind == "avro":
        fastavro = pytest.importorskip("fastavro")
        fields = [{"name": name, "type": "string"} for name in columns]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "event", "fields": fields}, records)
    elif kind == "inter":
        _write_csv(path, {f"{name}:token": values for name, values in columns.items()}, "\t")
    else:
        _write_csv(path, columns, "\t" if kind == "tsv" else ",")
    section = inspect_sources(str(path)).interactions
    assert (section.user, section.item, section.time, section.time_unit) == ("user_id", "item_id", "timestamp", "s")
    assert section.format == "auto"


def test_a_folder_of_parts_is_one_source(tmp_path: Path) -> None:
    for day in range(5):
        (tmp_path / "log" / f"day={day}").mkdir(parents=True)
        table = pa.table({"user_id": USERS, "item_id": ITEMS, "timestamp": [START_S + day] * 200})
        pq.write_table(table, tmp_path / "log" / f"day={day}" / "part.parquet")
    assert inspect_sources(str(tmp_path / "log")).interactions.time == "timestamp"


@pytest.mark.parametrize(("separator", "kind"), [("\t", "tsv"), (",", "csv")])
def test_an_extension_that_says_nothing_is_settled_by_the_content(tmp_path: Path, separator: str, kind: str) -> None:
    path = _write_csv(tmp_path / "u.data", {"user_id": USERS, "item_id": ITEMS, "time": SECONDS}, separator)
    assert inspect_sources(path).interactions.format == kind
    assert _reload(render_config(inspect_sources(path)), tmp_path).interactions.format == kind


def test_tabs_in_a_csv_are_noticed(tmp_path: Path) -> None:
    path = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "item_id": ITEMS, "time": SECONDS}, "\t")
    assert inspect_sources(path).interactions.format == "tsv"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"user_id,item_id,time\n", "no rows"),
        (b"1::1193::5::978300760\n1::661::3::978302109\n", r"two signs, '::'.*sed"),
        (b"196,242,3,881250949\n186,302,3,891717742\n", r"not column names(?s:.*)column_2: '242', '302'"),
        (b"\xff\xfe\x00nonsense", "e\\.csv"),
        (b"user_id,user_id,time\n1,2,3\n", "twice"),
    ],
)
def test_files_that_cannot_be_used_are_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "e.csv").write_bytes(content)
    with pytest.raises(RecsysError, match=message):
        inspect_sources(str(tmp_path / "e.csv"))


def test_a_missing_file_is_named(tmp_path: Path, events: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere\.csv"):
        inspect_sources(str(tmp_path / "nowhere.csv"))
    with pytest.raises(SourceError, match=r"nowhere\.csv"):
        inspect_sources(str(events), str(tmp_path / "nowhere.csv"))


def test_a_catalogue_without_the_item_is_refused_with_its_columns(tmp_path: Path, events: Path) -> None:
    items = _write_csv(tmp_path / "i.csv", {"x": ["1", "2"], "y": ["a", "b"]})
    with pytest.raises(ConfigError, match=r"None is named 'item_id'(?s:.*)  x: '1', '2'"):
        inspect_sources(str(events), items)


def test_one_row_is_enough(tmp_path: Path) -> None:
    path = _write_csv(tmp_path / "e.csv", {"user_id": ["1"], "item_id": ["2"], "time": [SECONDS[0]]})
    items = _write_csv(tmp_path / "i.csv", {"item_id": ["2"], "title": ["only one"]})
    assert _reload(render_config(inspect_sources(path, items)), tmp_path).items is not None


def _lines(path: Path, rows: list[list[str]], sign: str = "\t") -> str:
    path.write_text("\n".join(sign.join(row) for row in rows) + "\n", encoding="utf-8")
    return str(path)


def test_a_file_without_a_header_gets_made_up_names_and_asks_for_user_and_item_at_once(tmp_path: Path) -> None:
    rows = [[user, iso, "30.2", item] for user, iso, item in zip(USERS, ISO, ITEMS, strict=True)]
    path = _lines(tmp_path / "check-ins.txt", rows)
    with pytest.raises(ConfigError, match=r"not column names; .* --user column_1 --item column_3(?s:.*)column_4: 'ü0'"):
        inspect_sources(path)
    proposal = inspect_sources(path, user="column_1", item="column_4")
    section = _reload(render_config(proposal), tmp_path).interactions
    assert section.columns == ["column_1", "column_2", "column_3", "column_4"]
    assert (section.format, section.time, section.time_unit) == ("tsv", "column_2", "iso8601")
    items = _catalogue(tmp_path / "items.csv", title=[f"a thing number {n}" for n in range(40)])
    assert inspect_sources(path, items, user="column_1").interactions.item == "column_4"


def test_numbers_that_count_the_columns_are_names_and_other_numbers_are_values(tmp_path: Path) -> None:
    rows = [["ü1", "0.5", "0.1"], ["ü2", "0.2", "0.7"]]
    assert look(_lines(tmp_path / "a.tsv", [["item_id", "0", "1"], *rows]), 10).columns == ()
    assert look(_lines(tmp_path / "b.tsv", rows), 10).columns == ("column_1", "column_2", "column_3")
    assert look(_lines(tmp_path / "c.tsv", [["1", "2"], ["3", "4"]]), 10).columns == ("column_1", "column_2")
    assert look(_lines(tmp_path / "d.tsv", [["N1", "news", "https://x/y"]] * 3), 10).columns[2:] == ("column_3",)
    assert look(_lines(tmp_path / "e.tsv", [["", "user", "item"], ["0", "a", "b"]]), 10).columns == ()


@pytest.mark.parametrize("sign", [";", "|", ","])
def test_another_delimiter_is_noticed_whatever_the_extension(tmp_path: Path, sign: str) -> None:
    rows = [["user_id", "item_id", "time"], *([*row] for row in zip(USERS, ITEMS, SECONDS, strict=True))]
    section = _reload(render_config(inspect_sources(_lines(tmp_path / "e.dat", rows, sign))), tmp_path).interactions
    assert (section.format, section.delimiter) == ("csv", None if sign == "," else sign)
    assert section.user == "user_id"


@pytest.mark.parametrize(
    "pattern",
    ["%m/%d/%Y %I:%M:%S %p", "%d.%m.%Y %H:%M", "%Y/%m/%d %H:%M:%S", "%Y%m%d", "%a %b %d %H:%M:%S %z %Y", "%d %b %Y"],
)
def test_other_notations_of_time_are_recognised_where_one_alone_fits(tmp_path: Path, pattern: str) -> None:
    start = dt.datetime(2026, 1, 1, 8, tzinfo=dt.UTC)
    times = [(start + dt.timedelta(hours=17 * n)).strftime(pattern) for n in range(200)]
    path = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "item_id": ITEMS, "when": times, "n": ["5"] * 200})
    section = _reload(render_config(inspect_sources(path)), tmp_path).interactions
    assert (section.time, section.time_unit) == ("when", pattern)


def test_whether_day_or_month_comes_first_is_not_gambled_on(tmp_path: Path) -> None:
    times = [f"{1 + n % 12}/{1 + n % 11}/2026" for n in range(200)]
    path = _write_csv(tmp_path / "e.csv", {"user_id": USERS, "item_id": ITEMS, "date": times})
    with pytest.raises(ConfigError, match=r"day or month first\?.*--time-unit"):
        inspect_sources(path)
    assert inspect_sources(path, time_unit="%d/%m/%Y").interactions.time_unit == "%d/%m/%Y"


def test_what_is_counted_over_the_log_is_no_feature(tmp_path: Path, events: Path) -> None:
    counts = [str(n * 7 % 23) for n in range(40)]
    tallies = dict.fromkeys(("average_rating", "ratings_count", "reviewCount", "popularity", "num_views"), counts)
    stars = [f"{1 + n % 5}.5" for n in range(40)]
    items = _catalogue(tmp_path / "i.csv", **tallies, stars=stars, num_pages=counts, price=stars, pageCount=counts)
    found = _features(events, items)
    assert found.keys() == {"num_pages", "price", "pageCount"}
    assert "tells the future" in inspect_sources(str(events), items).skipped["ratings_count"]


def test_three_identifiers_each_are_no_vectors(tmp_path: Path, events: Path) -> None:
    lines = [{"item_id": f"ü{n}", "also": [f"{n:03d}", "001"], "vector": [0.5, n / 7]} for n in range(40)]
    (tmp_path / "i.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    kinds = {name: feature.kind for name, feature in _features(events, str(tmp_path / "i.jsonl")).items()}
    assert kinds == {"also": "categorical", "vector": "dense"}


def test_json_lines_are_known_under_another_name_and_compressed(tmp_path: Path) -> None:
    rows = [{"user_id": u, "item_id": i, "timestamp": int(s)} for u, i, s in zip(USERS, ITEMS, SECONDS, strict=True)]
    (tmp_path / "e.json.gz").write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode() + b"\n"))
    section = inspect_sources(str(tmp_path / "e.json.gz")).interactions
    assert (section.format, section.user) == ("jsonl", "user_id")


def test_a_catalogue_without_a_header_is_matched_by_its_values_and_not_by_made_up_names(tmp_path: Path) -> None:
    events = _lines(tmp_path / "e.tsv", [list(row) for row in zip(USERS, SECONDS, ITEMS, strict=True)])
    news = [["sports", f"a headline of thing {n}", "https://x/y", f"ü{n}"] for n in range(40)]
    proposal = inspect_sources(events, _lines(tmp_path / "n.tsv", news), user="column_1", item="column_3")
    config = _reload(render_config(proposal), tmp_path)
    assert config.items is not None
    assert config.items.item == "attribute_4"
    assert [feature.name for feature in config.items.features] == ["attribute_2"]
