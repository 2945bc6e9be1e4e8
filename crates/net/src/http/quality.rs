//! How much a client wants what a field of negotiation names (RFC 9110 §12.4.2).

/// The weight among the `parameters` of an item, in thousandths; 1000 without one, 0
/// for one that is no number.
pub fn weight<'a>(parameters: impl Iterator<Item = &'a str>) -> u16 {
    let mut parameters = parameters.map(str::trim);
    let weight = parameters.find_map(|parameter| parameter.strip_prefix("q="));
    let weight = weight.map_or(Some(1.0), |text| text.parse::<f32>().ok());
    (weight.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_a_number_up_to_one() {
        let of = |text: &str| weight(text.split(';'));
        assert_eq!(of(""), 1000);
        assert_eq!(of(" q=0.25"), 250);
        assert_eq!(of("level=1; q=0"), 0);
        for (text, weight) in [
            ("q=", 0),
            ("q=x", 0),
            ("q=nan", 0),
            ("q=-1", 0),
            ("q=9", 1000),
        ] {
            assert_eq!(of(text), weight, "{text}");
        }
    }
}
