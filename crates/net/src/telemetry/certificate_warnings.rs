//! What is told of certificates whose end is near: to the log once, and to the console
//! whenever somebody looks.

use doorward_core::x509;

use super::Telemetry;

/// Most warnings of the configuration that are told.
pub const MAX_WARNINGS: usize = 100;
/// When a certificate's end is near, in seconds.
const NEAR: i64 = 30 * 86_400;

/// What is told of the certificate at `place`, if its end is near.
pub fn near_end(place: &str, not_after: i64, now_secs: i64) -> Option<String> {
    let message = x509::expires_within(not_after, now_secs, NEAR)?;
    Some(format!("{place}: {message}"))
}

impl Telemetry {
    /// What is told of all certificates whose end is near at this time, those that expire
    /// first: of files, of the store and of an authority that renews none.
    pub fn certificate_warnings(&self, now_secs: i64) -> Vec<String> {
        let places = self.certificate_places.lock().clone();
        let expiries = self.certificate_expiries().into_iter();
        let ours = expiries.filter(|expiry| !expiry.is_renewed);
        let told = ours.filter_map(|expiry| {
            let place = places.get(&expiry.label).cloned();
            let place = place.unwrap_or_else(|| format!("certificates {}", expiry.label));
            let not_after = now_secs.saturating_add(expiry.seconds_left);
            near_end(&place, not_after, now_secs)
        });
        told.collect()
    }

    /// The warnings of the configuration at this time, a bounded number. The ends of
    /// certificates come last, and others make room for them.
    pub fn warnings(&self, now_secs: i64) -> Vec<String> {
        let ends = self.certificate_warnings(now_secs);
        let mut all = self.config_warnings.lock().clone();
        all.truncate(MAX_WARNINGS.saturating_sub(ends.len()));
        all.extend(ends);
        all.truncate(MAX_WARNINGS);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::listeners::Expiry;

    /// Telemetry of a process with one certificate in a file, and others.
    fn telemetry() -> Telemetry {
        let telemetry = Telemetry::default();
        let place = (
            "proxy.tls".to_owned(),
            "d.yaml:7: proxy.tls.certificate".to_owned(),
        );
        telemetry.certificate_places.lock().extend([place]);
        let expiry = |label: &str, days: i64, is_renewed| Expiry {
            label: label.to_owned(),
            seconds_left: days * 86_400,
            is_renewed,
        };
        telemetry.watch_certificates(move || {
            vec![
                expiry("proxy.tls", 2, false),
                expiry("a.example", -1, false),
                expiry("acme", 3, true),
                expiry("far", 31, false),
            ]
        });
        telemetry
    }

    #[test]
    fn certificates_are_told_by_file_and_line_where_these_are_known() {
        let told = telemetry().certificate_warnings(1_700_000_000);
        let expected = [
            "certificates a.example: the certificate expired on 2023-11-13",
            "d.yaml:7: proxy.tls.certificate: the certificate expires on 2023-11-16",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn ends_of_certificates_follow_the_other_warnings_and_all_are_bounded() {
        let telemetry = telemetry();
        telemetry.config_warnings.lock().push("d.yaml:1: a".into());
        let told = telemetry.warnings(1_700_000_000);
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(told[0], "d.yaml:1: a");
        let many = (0..200).map(|line| format!("d.yaml:{line}: a"));
        telemetry.config_warnings.lock().extend(many);
        let told = telemetry.warnings(1_700_000_000);
        assert_eq!(told.len(), MAX_WARNINGS);
        let end = told.last().expect("a warning");
        assert!(end.contains("expires on"), "{end}");
    }
}
