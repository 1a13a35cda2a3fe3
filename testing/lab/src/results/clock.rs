// SPDX-License-Identifier: GPL-2.0-or-later
//! UTC dates for names of runs and files.

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time as `YYYY-MM-DD` and `HHMMSS`.
pub fn now() -> (String, String) {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    date_and_time(seconds)
}

fn date_and_time(seconds: u64) -> (String, String) {
    let (year, month, day) = civil(seconds / 86_400);
    let second = seconds % 86_400;
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!(
            "{:02}{:02}{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        ),
    )
}

/// The date `days` days after 1970-01-01. Internally, years begin in March, so that the leap day is
/// the last day of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_400_YEARS: u64 = 146_097;
    let since_march_0 = days + 719_468;
    let (era, day_of_era) = (
        since_march_0 / DAYS_PER_400_YEARS,
        since_march_0 % DAYS_PER_400_YEARS,
    );
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_timestamps_have_their_dates() {
        for (seconds, date, time) in [
            (0, "1970-01-01", "000000"),
            (951_782_399, "2000-02-28", "235959"),
            (951_782_400, "2000-02-29", "000000"),
            (1_709_210_096, "2024-02-29", "123456"),
            (1_735_689_600, "2025-01-01", "000000"),
            (4_107_542_400, "2100-03-01", "000000"),
        ] {
            assert_eq!(date_and_time(seconds), (date.to_owned(), time.to_owned()));
        }
    }
}
