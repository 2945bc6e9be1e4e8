//! Rates as the command line takes them: `6/10s`, `100/m`.

use std::str::FromStr;

/// So many requests in so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    /// How many requests pass.
    pub(super) requests: u32,
    /// In how many seconds.
    pub(super) seconds: u32,
}

/// What is allowed.
const FORM: &str = "a rate is a number of requests, a slash and a time, such as 6/10s, 100/m or \
    5000/1d; times are in s, m, h or d";

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text).ok_or_else(|| FORM.to_owned())
    }
}

fn read(text: &str) -> Option<Rate> {
    let (requests, time) = text.split_once('/')?;
    let unit = time.chars().next_back()?;
    let count = &time[..time.len() - unit.len_utf8()];
    let unit = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let count = if count.is_empty() { 1 } else { number(count)? };
    Some(Rate {
        requests: number(requests)?,
        seconds: count.checked_mul(unit)?,
    })
}

/// A number above zero, in digits alone.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok()?;
    (digits && number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_requests_in_a_time() {
        let of = |requests, seconds| Ok(Rate { requests, seconds });
        assert_eq!("6/10s".parse(), of(6, 10));
        assert_eq!("100/m".parse(), of(100, 60));
        assert_eq!("5000/1d".parse(), of(5000, 86_400));
        for wrong in [
            "",
            "6",
            "6/",
            "/s",
            "0/s",
            "6/0s",
            "6/10",
            "+6/s",
            "6/10x",
            "6/99999999d",
            "6/é",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
