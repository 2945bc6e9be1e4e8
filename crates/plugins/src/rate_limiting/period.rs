//! Periods: windows of the calendar, in UTC.

/// A period in which requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Period {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Year,
}

impl Period {
    /// All, the shortest first.
    pub(crate) const ALL: [Period; 6] = [
        Period::Second,
        Period::Minute,
        Period::Hour,
        Period::Day,
        Period::Month,
        Period::Year,
    ];

    /// Its name, which is that of its field.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Period::Second => "second",
            Period::Minute => "minute",
            Period::Hour => "hour",
            Period::Day => "day",
            Period::Month => "month",
            Period::Year => "year",
        }
    }

    /// Its seconds. Months and years are taken for 30 and 365 days.
    pub(crate) fn seconds(self) -> i64 {
        match self {
            Period::Second => 1,
            Period::Minute => 60,
            Period::Hour => 3600,
            Period::Day => DAY,
            Period::Month => 30 * DAY,
            Period::Year => 365 * DAY,
        }
    }

    /// When the window of this instant began; both in seconds since the epoch.
    pub(crate) fn window(self, now: i64) -> i64 {
        match self {
            Period::Second | Period::Minute | Period::Hour | Period::Day => {
                now - now.rem_euclid(self.seconds())
            }
            Period::Month => (now.div_euclid(DAY) - day_of_month(now)) * DAY,
            Period::Year => (now.div_euclid(DAY) - day_of_year(now)) * DAY,
        }
    }
}

/// Seconds of a day.
const DAY: i64 = 86_400;
/// Days from 1 March of the year 0 to the epoch.
const EPOCH: i64 = 719_468;
/// Days of 400 years, after which the calendar repeats.
const ERA: i64 = 146_097;

/// The year that begins in March, and the day in it, both counted from 0.
fn year_and_day(now: i64) -> (i64, i64) {
    let day = (now.div_euclid(DAY) + EPOCH).rem_euclid(ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    (year, day - (365 * year + year / 4 - year / 100))
}

/// Days since the first of the month.
fn day_of_month(now: i64) -> i64 {
    let (_, day) = year_and_day(now);
    // Five months from March, and from August, have 153 days.
    let month = (5 * day + 2) / 153;
    day - (153 * month + 2) / 5
}

/// Days since 1 January.
fn day_of_year(now: i64) -> i64 {
    /// Days from 1 March to the end of the year.
    const MARCH_TO_DECEMBER: i64 = 306;
    let (year, day) = year_and_day(now);
    if day >= MARCH_TO_DECEMBER {
        return day - MARCH_TO_DECEMBER;
    }
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    day + 59 + i64::from(leap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_calendar() {
        // 2024-02-29T12:34:56Z, 2024-12-31T23:59:59Z, 2023-03-01T00:00:00Z,
        // 1970-01-01T00:00:00Z, 2000-01-31T00:00:01Z, 2100-03-01T00:00:00Z
        for (now, month, year) in [
            (1_709_210_096, 1_706_745_600, 1_704_067_200),
            (1_735_689_599, 1_733_011_200, 1_704_067_200),
            (1_677_628_800, 1_677_628_800, 1_672_531_200),
            (0, 0, 0),
            (949_276_801, 946_684_800, 946_684_800),
            (4_107_542_400, 4_107_542_400, 4_102_444_800),
        ] {
            assert_eq!(Period::Month.window(now), month, "{now}");
            assert_eq!(Period::Year.window(now), year, "{now}");
        }
        let now = 1_709_210_096;
        assert_eq!(Period::Second.window(now), now);
        assert_eq!(Period::Minute.window(now), now - 56);
        assert_eq!(Period::Hour.window(now), now - 34 * 60 - 56);
        assert_eq!(Period::Day.window(now), 1_709_164_800);
    }
}
