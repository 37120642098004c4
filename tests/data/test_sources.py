from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from recsys_cg.data.blocks import Block
from recsys_cg.data.sources import column_names, fingerprint, list_files, plan_reads, read_blocks
from recsys_cg.errors import SourceError

ROWS = [("007", "a,b\nc"), ("ü 🎬", 'say "hi"'), ("3", "x")]


def _read(
    path: Path | str,
    columns: list[str],
    block_rows: int = 100,
    format: str = "auto",  # noqa: A002
    nested: tuple[str, ...] = (),
) -> list[Block]:
    reads = plan_reads(list_files(str(path), format), columns, nested)
    return [block for read in reads for block in read_blocks(read, block_rows)]


def _values(blocks: list[Block], column: str) -> list[Any]:
    return [value for block in blocks for value in block.table.column(column).to_pylist()]


def _numbers(blocks: list[Block]) -> list[int]:
    return [int(number) for block in blocks for number in block.numbers]


def _rejects(blocks: list[Block]) -> list[tuple[int, str]]:
    rows = [row for block in blocks for row in block.rejects.to_pylist()]
    return [(row["row"], row["reason"]) for row in rows]


CSV = 'user,item\n007,"a,b\nc"\nü 🎬,"say ""hi"""\n3,x\n'


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.zst"])
def test_csv_keeps_identifiers_as_they_stand(tmp_path: Path, name: str) -> None:
    data = CSV.encode()
    packed = {"gz": gzip.compress(data), "zst": zstandard.compress(data)}.get(name.rsplit(".", 1)[1], data)
    (tmp_path / name).write_bytes(packed)
    blocks = _read(tmp_path / name, ["user", "item"])
    assert list(zip(_values(blocks, "user"), _values(blocks, "item"), strict=True)) == ROWS
    assert _numbers(blocks) == [1, 2, 3]


def test_tsv_and_only_the_columns_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\tc\n1\t2,5\t\n")
    (block,) = _read(tmp_path / "x.tsv", ["c", "b"])
    assert block.table.to_pydict() == {"c": [None], "b": ["2,5"]}


def test_recbole_headers_lose_their_types_and_quotes_are_ordinary_signs(tmp_path: Path) -> None:
    (tmp_path / "x.inter").write_text('user_id:token\ttitle:token_seq\ttime:float\n007\t"Airplane! 6"\t1.5\n')
    assert column_names(list_files(str(tmp_path / "x.inter"))[0]) == ["user_id", "title", "time"]
    (block,) = _read(tmp_path / "x.inter", ["user_id", "title", "time"])
    assert block.table.to_pylist() == [{"user_id": "007", "title": '"Airplane! 6"', "time": "1.5"}]


def test_rows_with_another_number_of_fields_are_refused_with_their_number(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n\n4,5\n6,7,8\n9,10\n")
    blocks = _read(tmp_path / "x.csv", ["a"], block_rows=2)
    assert _values(blocks, "a") == ["1", "4", "9"]
    assert _numbers(blocks) == [1, 3, 5]
    assert _rejects(blocks) == [(2, "wrong_number_of_fields"), (4, "wrong_number_of_fields")]
    record = json.loads(next(block.rejects["record"][0].as_py() for block in blocks if block.rejects.num_rows))
    assert record == {"line": "3", "fields": 1, "expected": 2}


@pytest.mark.parametrize("text", ["a,b\n1,2\n3", 'a,b\n1,2\n3,"4\n5,6\n'])
def test_a_csv_cut_in_the_middle_is_an_error_not_a_reject(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(SourceError, match=r"x\.csv: the file ends (in the middle|inside)"):
        _read(tmp_path / "x.csv", ["a", "b"])


def test_a_whole_last_row_without_line_break_is_fine(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4")
    assert _values(_read(tmp_path / "x.csv", ["b"]), "b") == ["2", "4"]


@pytest.mark.parametrize("name", ["x.csv.gz", "x.csv.zst", "x.jsonl.gz", "x.parquet", "x.avro"])
def test_a_cut_file_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    text = ("a,b\n" + "".join(f"{i},{i * 7919}\n" for i in range(5_000))).encode()
    lines = "".join(json.dumps({"a": i, "b": i * 7919}) + "\n" for i in range(5_000)).encode()
    whole = tmp_path / "whole"
    if name.endswith("parquet"):
        pq.write_table(pa.table({"a": list(range(5_000)), "b": list(range(5_000))}), whole)
    elif name.endswith("avro"):
        schema = {"type": "record", "name": "r", "fields": [{"name": key, "type": "long"} for key in "ab"]}
        with whole.open("wb") as file:
            fastavro.writer(file, schema, [{"a": i, "b": i} for i in range(5_000)])
    else:
        data = lines if "jsonl" in name else text
        whole.write_bytes(gzip.compress(data) if name.endswith("gz") else zstandard.compress(data))
    (tmp_path / name).write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    with pytest.raises(SourceError, match=name.replace(".", r"\.")):
        _read(tmp_path / name, ["a"])


def test_text_that_is_not_utf8_is_an_error_with_a_mend(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,caf\xe9\n")
    with pytest.raises(SourceError, match=r"x\.csv: the text is not UTF-8.*iconv"):
        _read(tmp_path / "x.csv", ["b"])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['{"u": "007", "n": 1}', '{"n": 2, "u": "8"}'], [("007", 1), ("8", 2)]),
        (['{"u": "2020-01-01T00:00:00Z", "n": 1}'], [("2020-01-01T00:00:00Z", 1)]),
        (['{"u": 7, "n": 1.50}', '{"u": "x", "n": null}', '{"u": true}'], [("7", "1.50"), ("x", None), ("true", None)]),
        (['{"u": 99999999999999999999999, "n": 1}'], [("99999999999999999999999", "1")]),
    ],
)
def test_jsonl_values_keep_their_text(tmp_path: Path, lines: list[str], expected: list[tuple[Any, Any]]) -> None:
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    blocks = _read(tmp_path / "x.jsonl", ["u", "n"])
    assert list(zip(_values(blocks, "u"), _values(blocks, "n"), strict=True)) == expected


def test_jsonl_lists_stay_lists(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"g": ["a", "b"]}\n{"g": "c"}\n{"g": null}\n')
    assert _values(_read(tmp_path / "x.jsonl", ["g"], nested=("g",)), "g") == [["a", "b"], ["c"], None]


def test_jsonl_lines_that_are_no_objects_are_refused_and_keep_their_number(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"u": "a"}\n\n[1]\n{oops\n{"u": "b"}\n')
    blocks = _read(tmp_path / "x.jsonl", ["u"], block_rows=2)
    assert _values(blocks, "u") == ["a", "b"]
    assert _numbers(blocks) == [1, 5]
    assert _rejects(blocks) == [(3, "malformed_json"), (4, "malformed_json")]


def test_jsonl_cut_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"u": "a"}\n{"u": "b')
    with pytest.raises(SourceError, match=r"x\.jsonl: the file ends in the middle of a line"):
        _read(tmp_path / "x.jsonl", ["u"])


def test_parquet_is_read_in_row_groups_with_running_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsys_cg.data.sources._READ_ROWS", 4)
    pq.write_table(pa.table({"a": list(range(10)), "b": ["x"] * 10}), tmp_path / "x.parquet", row_group_size=3)
    reads = plan_reads(list_files(str(tmp_path / "x.parquet")), ["a"])
    assert [(read.number, read.groups, read.first_row) for read in reads] == [(0, (0, 1), 1), (1, (2, 3), 7)]
    blocks = _read(tmp_path / "x.parquet", ["a"], block_rows=2)
    assert _values(blocks, "a") == list(range(10))
    assert _numbers(blocks) == list(range(1, 11))
    assert max(block.table.num_rows for block in blocks) == 2


def test_a_hive_folder_gives_its_partitions_as_columns(tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"a": [1]}), tmp_path / f"day={day}" / "part.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "README.md").write_text("not data")
    blocks = _read(tmp_path, ["day", "a"])
    assert _values(blocks, "day") == ["2026-01-01", "2026-01-02"]
    assert blocks[0].table.column_names == ["day", "a"]


def test_avro(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "u", "type": ["null", "string"]},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    with (tmp_path / "x.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"u": "007", "t": 1}, {"u": None, "t": 2}, {"u": "8", "t": 3}])
    blocks = _read(tmp_path / "x.avro", ["u", "t"], block_rows=2)
    assert _values(blocks, "u") == ["007", None, "8"]
    assert pa.types.is_timestamp(blocks[0].table.schema.field("t").type)
    assert _numbers(blocks) == [1, 2, 3]


def test_globs_and_urls(tmp_path: Path) -> None:
    for name in ("a1.csv", "a2.csv", "b.csv"):
        (tmp_path / name).write_text(f"x\n{name}\n")
    assert _values(_read(f"{tmp_path}/a*.csv", ["x"]), "x") == ["a1.csv", "a2.csv"]
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/day=1/x.csv.gz", gzip.compress(b"x\n007\n"))
    blocks = _read("memory://bucket", ["x", "day"])
    assert blocks[0].table.to_pylist() == [{"x": "007", "day": "1"}]
    assert blocks[0].source == "memory://bucket/day=1/x.csv.gz"
    before = fingerprint("memory://bucket")
    memory.pipe("/bucket/day=1/x.csv.gz", gzip.compress(b"x\n0071\n"))
    assert fingerprint("memory://bucket") != before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "no such file or folder"),
        ("empty.csv", b"", r"the file is empty \(0 bytes\)"),
        ("data.xyz", b"1", "cannot tell the format of data.xyz; give format"),
        ("twice.csv", b"a,a\n1,2\n", "names a column twice: a"),
        ("x.inter", b"user\titem\n1\t2\n", "no RecBole header"),
        ("x.parquet", b"PAR1 no", "no whole Parquet file"),
        ("x.avro", b"Obj no", "no whole Avro file"),
        ("x.jsonl", b"1\n2\n", "no JSON object"),
        ("utf16.csv", "a,b\n1,2\n".encode("utf-16"), "the text is not UTF-8"),
        ("blank.csv", b"\n\n", "the file is empty"),
    ],
)
def test_what_is_no_source_says_why(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        _read(tmp_path / name, ["a"])


def test_an_empty_folder_and_mixed_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file of a known format"):
        list_files(str(tmp_path))
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.tsv").write_text("a\n1\n")
    with pytest.raises(SourceError, match="formats are mixed"):
        list_files(str(tmp_path))
    with pytest.raises(SourceError, match="no file matches"):
        list_files(f"{tmp_path}/*.parquet")


def test_an_unknown_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere://x"):
        list_files("nowhere://x")


def test_a_missing_column_is_told_with_those_that_are_there_and_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("User_ID,item\n1,2\n")
    with pytest.raises(SourceError, match=r"no column 'user_id'; it has 'User_ID', 'item'; did you mean 'User_ID'\?"):
        _read(tmp_path / "x.csv", ["user_id"])


def test_fingerprints_follow_content_and_not_the_place(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text("a\n1\n")
    assert fingerprint(str(tmp_path / "a")) == fingerprint(str(tmp_path / "b"))
    (tmp_path / "b" / "x.csv").write_text("a\n2\n")
    assert fingerprint(str(tmp_path / "a")) != fingerprint(str(tmp_path / "b"))


def test_a_byte_order_mark_is_no_part_of_a_column_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("\ufeffa,b\n1,2\n".encode())
    assert _values(_read(tmp_path / "x.csv", ["a"]), "a") == ["1"]


def test_a_column_that_parquet_has_twice_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match="has column 'a' 2 times"):
        _read(tmp_path / "x.parquet", ["a"])


def test_parquet_strings_must_be_utf8(tmp_path: Path) -> None:
    broken = pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))
    pq.write_table(pa.table({"a": broken}), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"x\.parquet.*UTF8"):
        _read(tmp_path / "x.parquet", ["a"])


def test_half_a_surrogate_pair_is_a_refused_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"u": "a\\u00fc", "n": true}\n{"u": "\\ud800", "n": 2}\n{"u": "b", "n": 3}\n')
    blocks = _read(path, ["u"])
    assert (_values(blocks, "u"), _rejects(blocks)) == (["aü", "b"], [(2, "malformed_json")])


@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_header_of_one_field_names_the_separator_that_it_looks_to_have(tmp_path: Path, sign: str) -> None:
    (tmp_path / "x.csv").write_text(f"user{sign}item\n1{sign}2\n")
    with pytest.raises(SourceError, match="looks to be separated by"):
        plan_reads(list_files(str(tmp_path / "x.csv")), ["user"])


@pytest.mark.parametrize(
    ("data", "advice"), [(gzip.compress(b"u\n1\n"), "name it .gz"), (b"PAR1\xff\xff", 'format = "parquet"')]
)
def test_bytes_of_another_kind_under_a_csv_name_are_told(tmp_path: Path, data: bytes, advice: str) -> None:
    (tmp_path / "x.csv").write_bytes(data)
    with pytest.raises(SourceError, match=advice):
        column_names(list_files(str(tmp_path / "x.csv"))[0])


def test_what_a_storage_library_raises_becomes_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCredentialsError(Exception):
        pass

    def refuse(self: object, path: str) -> bool:
        raise NoCredentialsError("no credentials are here")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "isfile", refuse)
    with pytest.raises(SourceError, match=r"memory://bucket/x\.csv: cannot be read: no credentials are here"):
        list_files("memory://bucket/x.csv")


NESTED = ['{"u": "a", "i": 1}', '{"u": ["b", "c"], "i": 2}', '{"u": "d", "i": {"x": 3}}', "oops", '{"u": "e", "i": 5}']


def test_a_list_or_an_object_where_one_value_belongs_refuses_its_line_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(NESTED) + "\n")
    for block_rows in (1, 2, 100):
        blocks = _read(path, ["u", "i"], block_rows)
        items = [str(value) for value in _values(blocks, "i")]
        assert (_values(blocks, "u"), items, _numbers(blocks)) == (["a", "e"], ["1", "5"], [1, 5])
        assert _rejects(blocks) == [(2, "nested_value"), (3, "nested_value"), (4, "malformed_json")]
    (block,) = _read(path, ["u", "i"])
    assert json.loads(block.rejects["record"][0].as_py()) == {"u": ["b", "c"], "i": "2"}
    (block,) = _read(path, ["u", "i"], nested=("u",))
    assert block.table["u"].to_pylist() == [["a"], ["b", "c"], ["e"]]
    assert _rejects([block]) == [(3, "nested_value"), (4, "malformed_json")]


def test_a_list_in_an_avro_field_that_may_be_one_value_refuses_its_record(tmp_path: Path) -> None:
    union = ["null", "string", {"type": "array", "items": "string"}]
    schema = {"type": "record", "name": "r", "fields": [{"name": "u", "type": union}, {"name": "t", "type": "long"}]}
    with (tmp_path / "x.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"u": "a", "t": 1}, {"u": ["b"], "t": 2}, {"u": None, "t": 3}])
    blocks = _read(tmp_path / "x.avro", ["u", "t"], block_rows=2)
    assert (_values(blocks, "u"), _values(blocks, "t"), _numbers(blocks)) == (["a", None], [1, 3], [1, 3])
    assert _rejects(blocks) == [(2, "nested_value")]


def _headless(path: Path, columns: tuple[str, ...], block_rows: int = 100) -> list[Block]:
    reads = plan_reads(list_files(str(path), "csv", delimiter=";", columns=columns), ["i", "u"])
    return [block for read in reads for block in read_blocks(read, block_rows)]


def test_a_file_without_a_header_is_read_by_the_names_given_from_its_first_line_on(tmp_path: Path) -> None:
    path = tmp_path / "x.dat"
    path.write_text('1;5;9\n2;6\n\n7;"8;x";\n')
    blocks = _headless(path, ("u", "i", "t"))
    assert (_values(blocks, "u"), _values(blocks, "i"), _numbers(blocks)) == (["1", "7"], ["5", "8;x"], [1, 3])
    assert _rejects(blocks) == [(2, "wrong_number_of_fields")]
    with pytest.raises(SourceError, match="columns gives 2 names, and the first line has 3 fields"):
        _headless(path, ("u", "i"))
    path.write_text("1;5;9\n2;6")
    with pytest.raises(SourceError, match="ends in the middle of a row"):
        _headless(path, ("u", "i", "t"))


def test_delimiter_and_columns_are_options_of_delimited_text_alone(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    for options in ({"delimiter": ";"}, {"columns": ("a",)}):
        with pytest.raises(SourceError, match="delimiter and columns are for csv and tsv, and the format is jsonl"):
            list_files(str(tmp_path / "x.jsonl"), **options)  # type: ignore[arg-type]


def test_a_whole_number_names_the_same_with_and_without_its_point(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"u": 7, "p": 1.5}\n{"u": 7.0, "p": 2.0}\n{"u": "7.0", "p": 12345678901234567890.0}\n')
    blocks = _read(path, ["u", "p"])
    assert _values(blocks, "u") == ["7", "7", "7.0"]  # what is text stays as it stands
    assert _values(blocks, "p") == ["1.5", "2", "12345678901234567890.0"]
