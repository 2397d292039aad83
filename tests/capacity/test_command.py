"""`servecast ptu` and `servecast prices` as a user gives them: terminal, folder, SQL, page, mistakes."""

import json

import pytest

from tests.replay import servecast

# Three days, a request a minute: by day 30 units (90,000 tokens), by night 10.
LINE = ", ".join(
    f"{60 * minute}s {89_996 if 480 <= minute % 1440 < 1200 else 29_996}>1 covered=0 tenant={'ab'[minute % 2]}"
    for minute in range(3 * 1440)
)
COLUMNS = 80


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trace and the purchase decided on it."""
    place = tmp_path_factory.mktemp("ptu")
    trace = servecast.trace(place / "trace.parquet", LINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        result = servecast.run("ptu", trace, "--model", "gpt-4.1", "--region", "swedencentral", "-o", "runs")
    assert result.exit_code == 0, result.output
    (folder,) = (place / "runs" / "purchases").iterdir()
    return {"place": place, "trace": trace, "folder": folder, "shown": result.stdout}


@pytest.fixture
def there(made, monkeypatch):
    monkeypatch.chdir(made["place"])
    return made


def sql(folder, question):
    result = servecast.run("sql", folder, question, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_terminal_says_what_to_buy(made):
    text = " ".join(made["shown"].split())
    # A busy unit saves 262.80 a month. At 260 a unit must work 98.9 % of the time: the night's ten do, which is below
    # the minimum of 15; so nothing is bought by the month, and a year needs four weeks of log.
    assert text.startswith("Buy no capacity for gpt-4.1 (Azure provisioned throughput, global, swedencentral)")
    # 17 of 20 units on average: 12 of 24 hours 30, else 10.
    assert f"pay-as-you-go costs USD {20 * 262.80:,.0f} a month" in text
    assert "The log covers 3.0 days" in text
    assert "swedencentral has global units of gpt-4.1" in text
    assert max(map(len, made["shown"].splitlines()[:-2])) <= COLUMNS


def test_the_same_purchase_is_found_again(there):
    result = servecast.run("ptu", there["trace"], "--model", "gpt-4.1", "--region", "swedencentral", "-o", "runs")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("This purchase was decided before: ")
    assert len(list((there["place"] / "runs" / "purchases").iterdir())) == 1


def test_the_same_purchase_gives_the_same_bytes(there, tmp_path):
    arguments = ("--model", "gpt-4.1", "--region", "swedencentral", "-o", tmp_path)
    assert servecast.run("ptu", there["trace"], *arguments).exit_code == 0
    (again,) = (tmp_path / "purchases").iterdir()
    assert again.name == there["folder"].name
    assert sorted(p.name for p in again.iterdir()) == sorted(p.name for p in there["folder"].iterdir())
    for path in again.iterdir():
        assert path.read_bytes() == (there["folder"] / path.name).read_bytes(), path.name


def test_plans_add_up(made):
    """The answers of purchases beside sums made here from the tables."""
    folder = made["folder"]
    plans = sql(folder, "SELECT * FROM purchase_plans() WHERE term = '1-year' ORDER BY units")
    minutes = sql(folder, "SELECT units, raw_tokens, payg_usd FROM purchase_minutes")
    assert len(minutes) == 3 * 1440
    months = len(minutes) / 43_800
    payg = sum(m["payg_usd"] for m in minutes) / months
    value = payg / (sum(m["units"] for m in minutes) / len(minutes))
    for plan in plans:
        beyond = sum(max(0, m["units"] - plan["units"]) for m in minutes) / len(minutes)
        assert plan["capacity_usd"] == pytest.approx(221 * plan["units"], rel=1e-9)
        assert plan["fluid_usd_per_month"] == pytest.approx(221 * plan["units"] + value * beyond, rel=1e-9)
        assert plan["usd_per_month"] == pytest.approx(plan["capacity_usd"] + plan["spilled_usd"], rel=1e-9)
        tokens = sum(m["raw_tokens"] for m in minutes) / months
        assert plan["usd_per_1m_tokens"] == pytest.approx(1e6 * plan["usd_per_month"] / tokens, rel=1e-9)
    assert {15, 20, 30} <= {plan["units"] for plan in plans}


def test_choices_name_the_habits(made):
    found = {row["choice"]: row for row in sql(made["folder"], "FROM purchase_choices()")}
    assert found["pay-as-you-go"]["is_recommended"]
    assert found["pay-as-you-go"]["against_payg"] == pytest.approx(0, abs=1e-12)
    assert (found["sized to the mean"]["units"], found["sized to the peak"]["units"]) == (20, 30)
    assert found["best at 1-year"]["is_withheld"]
    assert found["sized to the peak"]["usd_per_month"] == pytest.approx(30 * 260, rel=1e-9)


def test_break_even_and_marginal_units(made):
    found = {row["term"]: row for row in sql(made["folder"], "FROM purchase_break_even()")}
    assert found["1-month"]["break_even_share"] == pytest.approx(260 / 262.80, rel=1e-6)
    assert found["hourly"]["break_even_share"] == pytest.approx(730 / 262.80, rel=1e-6)
    # Ten units work always, twenty more half of the time.
    assert {term: row["marginal_units"] for term, row in found.items()} == {"hourly": 0, "1-month": 10, "1-year": 10}


def test_the_duration_curve_counts_every_minute(made):
    found = sql(made["folder"], "FROM purchase_duration(points := 1000)")
    assert found[-1]["share_of_time"] == 1
    for row in found:
        assert row["units"] == pytest.approx(30 if row["share_of_time"] <= 0.5 else 10, rel=1e-3)


def test_days_and_use_where_a_purchase_pays(there, tmp_path):
    """At half the price 15 units always pay, and the day's 30 do not work enough at 70 % of their value."""
    result = servecast.run("ptu", there["trace"], "--model", "gpt-4.1", "--set", "prices.usd_per_unit_month=200",
                           "--set", "prices.bucket_s=600", "-o", tmp_path)  # fmt: skip
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "purchases").iterdir()
    facts = json.loads((folder / "purchase.json").read_text())["figures"]
    # 15 units: 3,000 + 262.80 * half of (30 - 15); pay-as-you-go 262.80 * 20.
    assert (facts["best_units"], facts["best_term"]) == (15, "1-month")
    days = sql(folder, "FROM purchase_savings()")
    fluid = 262.80 * 20 - (15 * 200 + 262.80 * 7.5)
    for day in days:
        assert day["saved_usd"] == pytest.approx(fluid * 24 / 730, rel=1e-3)
    assert facts["confidence"]["probability"] == 1
    use = sql(folder, "FROM purchase_use(points := 3)")
    assert [row["minutes"] for row in use] == [1440] * 3
    # By day all 15 units work, by night 10 of them.
    for row in use[1:]:
        assert row["used_share"] == pytest.approx((15 + 10) / 2 / 15, rel=0.02)


def test_a_part_of_the_log(there, tmp_path):
    arguments = ("--where", "tenant = 'a'", "--model", "gpt-4.1", "-o", tmp_path)
    assert servecast.run("ptu", there["trace"], *arguments).exit_code == 0
    (folder,) = (tmp_path / "purchases").iterdir()
    assert sql(folder, "SELECT requests FROM purchases") == [{"requests": 3 * 720}]


def test_a_purchase_cut_short_leaves_nothing(there, tmp_path, monkeypatch):
    from pipeline.capacity import store

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.pq, "write_table", full)
    result = servecast.run("ptu", there["trace"], "--model", "gpt-4.1", "-o", tmp_path)
    assert result.exit_code == 2, result.output
    assert "cannot be written: No space left on device" in result.stderr
    assert list((tmp_path / "purchases").iterdir()) == []


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "prices.model is not set"),
    (["--model", "gpt-4.2"], "did you mean"),
    (["--model", "gpt-4.1", "--set", "prices.retry=never"], "prices.retry"),
    (["--model", "gpt-4.1", "--set", "prices.max_tokens_policy=fixed"], "needs prices.fixed_max_tokens"),
    (["--model", "gpt-4.1", "--where", "tenant = 'nobody'"], "no request of the trace can be counted"),
    (["--provider", "bedrock", "--model", "amazon.nova-pro-v1:0"], "prices.model"),
])  # fmt: skip
def test_mistakes_are_named(there, tmp_path, arguments, said):
    result = servecast.run("ptu", there["trace"], *arguments, "-o", tmp_path)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert not (tmp_path / "purchases").exists()


def test_own_replicas_stand_beside(there, tmp_path):
    """Nine requests a day of a few tokens: one little engine keeps the SLO for all of them."""
    trace = servecast.trace(tmp_path / "small.parquet", "0us 100>20 times=4, 60s 100>20 times=4")
    result = servecast.run("ptu", trace, "--model", "gpt-4.1", "--own", "-o", tmp_path / "runs",
                           *servecast.settings(), "--set", "prices.usd_per_gpu_hour=2")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "own GPUs" in result.stdout
    (folder,) = (tmp_path / "runs" / "purchases").iterdir()
    own = {row["choice"]: row for row in sql(folder, "FROM purchase_choices() WHERE choice LIKE 'own%'")}
    assert own["own GPUs"]["usd_per_month"] == pytest.approx(2 * 730, rel=1e-9)
    assert own["own GPUs, warm spare"]["usd_per_month"] == pytest.approx(2 * 2 * 730, rel=1e-9)
    assert sql(folder, "FROM purchase_replicas()")[0]["replicas"] == 1


def test_prices_are_listed_with_source_and_age():
    result = servecast.run("prices", "units", "--model", "gpt-4.1")
    assert result.exit_code == 0, result.output
    assert "gpt-4.1" in result.stdout
    assert "MSDOC-SIZING-2026-09-23" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= COLUMNS


def test_prices_as_json_have_every_column():
    result = servecast.run("prices", "gpu_hours", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == 73
    assert {"provider", "gpu", "term", "usd_per_gpu_hour", "source", "as_of"} <= set(rows[0])


@pytest.mark.parametrize(("arguments", "said"), [
    (["gold"], "no such table"),
    (["units", "--provider", "acme"], "there are"),
    (["scale_tier", "--provider", "x"], "no column provider"),
])  # fmt: skip
def test_mistakes_about_prices(arguments, said):
    result = servecast.run("prices", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
