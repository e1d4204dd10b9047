"""What comes from outside is printed, recorded and tabulated safely, and harmless text stays as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamproof.base.safe_text import looks_secret, mask_secrets, one_line, printable, spreadsheet_text

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]0;red\x07red",
        "\x9b31mred",
        "re\x08d",
        "\x1bcred",
        "\x1bP1;2|x\x1b\\red",
        "r\x00ed",
        "\u202ered",
    ],
)
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    assert printable(text).endswith("red") and printable(text).isprintable()


def test_an_escape_without_end_takes_only_its_own_line() -> None:
    assert printable("a\x1b]0;title\nnext line") == "a\nnext line"


@given(st.text())
def test_a_printable_text_can_be_encoded_and_is_left_alone_the_second_time(text: str) -> None:
    once = printable(text)
    assert printable(once) == once
    assert once.encode().decode() == once
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_API_KEY", "x"),
        ("HF_TOKEN", "abc"),
        ("AWS_SECRET_ACCESS_KEY", "abc"),
        ("DB_PASSWORD", "hunter2"),
        ("ANYTHING", TOKEN),
        ("URL", "https://me:hunter2@host/x"),
        ("AWS_ACCESS_KEY_ID", "AKIA0123456789ABCDEF"),
    ],
)
def test_secrets_are_known_by_name_or_by_value(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MUJOCO_GL", "egl"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("TOKEN_LIMIT", "100"),
        ("SECRET_FILE", "/run/secrets/key"),
        ("WANDB_MODE", "offline"),
        ("XLA_FLAGS", "--xla_gpu_deterministic_ops=true"),
        ("KEYBOARD", "us"),
        ("WANDB_API_KEY", ""),
        ("COMMIT", "0123456789abcdef0123456789abcdef01234567"),
    ],
)
def test_what_is_no_secret_is_not_refused(name: str, value: str) -> None:
    assert not looks_secret(name, value)


@pytest.mark.parametrize(
    "text",
    [
        f"token={TOKEN}",
        f"Authorization: Bearer {TOKEN}",
        "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
        '{"api_key": "0123456789abcdef0123456789"}',
        "git clone https://me:hunter2secret@host/x.git",
    ],
)
def test_secrets_in_a_line_are_masked(text: str) -> None:
    masked = mask_secrets(text)
    assert "[secret]" in masked
    assert not any(part in masked for part in (TOKEN, "0123456789abcdef", "hunter2"))


@pytest.mark.parametrize(
    "text",
    [
        "token: 12 of 4096",
        "export WANDB_API_KEY=$KEY_FROM_MY_OWN_FILE",
        "max_tokens=100000000000000",
        "--tokenizer=sentencepiece-12k-vocabulary",
        "ModuleNotFoundError: No module named 'secrets_of_the_trade'",
        "step 100 loss 0.3, key points 12",
        "api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize("text", ["=1+1", "+SUM(A1)", "-cmd|x", "@x", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_a_formula_is_text_for_a_spreadsheet(text: str) -> None:
    assert spreadsheet_text(text)[0] == "'" or spreadsheet_text(text)[0].isalnum()


@pytest.mark.parametrize("text", ["-3.5", "+1e-9", "-inf", "nan", "plain", "", "a=b", "−3"])
def test_numbers_and_plain_text_are_left_alone(text: str) -> None:
    assert spreadsheet_text(text) == text
