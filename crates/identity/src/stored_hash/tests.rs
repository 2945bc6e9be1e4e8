//! Hashes that other implementations made of one password.

use super::*;

const PASSWORD: &str = "correct horse \u{df}";

const KNOWN: &[&str] = &[
    "$2b$04$V1FwC4xa88bF5r2OTd5aMeok35Jf2vagldtM5l2cnXZyln4x3Jzuu",
    "$2a$04$dKxWmctXE5ypdeNLNqRpCOs70VJ3UGxAKOKmPgO0Ffn0xojcEmane",
    "$2y$04$V1FwC4xa88bF5r2OTd5aMeok35Jf2vagldtM5l2cnXZyln4x3Jzuu",
    "{CRYPT}$2b$04$V1FwC4xa88bF5r2OTd5aMeok35Jf2vagldtM5l2cnXZyln4x3Jzuu",
    "bcrypt_sha256$$2b$04$ZKpLEwi4j3kyp8AswtzDw.b2/fUOGopxiw/D6y1OUgj1prTnFlpwG",
    "bcrypt$$2b$04$wPHV.k9JSNi8fuaZzR5q6.xMqFyvEcPmwiSJmAd0D6D8xDcLGKZPy",
    "$argon2i$v=19$m=64,t=2,p=2$86H1Fuj0+c35KQ3v6AJaug$0SDqH9kCoLWZanErDwFO+lcMJZQWkq3GgMkhb0M4tes",
    "$argon2d$v=19$m=64,t=2,p=2$A/7qdRQ+E1Oovb+RkXGvhA$1Dxmz0lW7Cb2Qhp0ipzaEB3ez+MhN4cwH13EXoRuQTc",
    "{ARGON2}$argon2id$v=19$m=64,t=2,p=2$r/kqExZMrZZ0eenOEHYohw$AB5m2lCdC+N2FQyYiDPAgfhd6YFTQ5D8K9oYtMAizeU",
    "argon2$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$xgQy7KWaW0cUMt103rqRxTQcqRJ8Rs8AiRvwllP8eDk",
    "$pbkdf2$1000$gzAGYExpjfGeEyJEaC3FuA$eaWdxKT6BHIVjLURqLPvhT5kTi0",
    "$pbkdf2-sha256$1000$UMqZM6Z0ztnbO.e8V6p1zg$QQEVH0IfC40XRiKjo6f22nrLH.LWLVXaV/tw9FCcPkE",
    "$pbkdf2-sha512$1000$SinFuNf6P2fMWctZi9G69w$28th41oE7AsUl5WPRqGPe2KhYatfpvFE7/XDi6nEonBixjD5mXmLPvq9WxJ.nQjH/0WQhZBwforVRL1xxQGvMA",
    "$pbkdf2-sha512$i=1000,l=64$EjXTkI0wyVc9t9om568POg$VxUTAsLTWhLJbE9U1Yon/FJGP3f5/H2GRaXwnaqMrxow7xOPX2I83C+R1ddGj+N1nfY/0IVgvasbkeMEiUdbCA",
    "{PBKDF2}1000$sfbee6/1npPSWmsthRBiTA$GYMd2JIC5Isagv0k4qEjedaBu10",
    "{PBKDF2-SHA256}1000$qLU2hhCCcG4tJcQ4h7D2fg$PO8C3CzR.9CsY1vop9PWZnRcgyPIUIa4gZ082xlRXns",
    "{PBKDF2-SHA512}1000$1/qf8x7j/D.nFILQ2luL8Q$D7XfawG1LArTA1jozBaMcA9T6GGh0mzzPm0Ewo7exvItWek/8Du9Jj9j0Y0gdYCilwth/6nvqkxn0A..qHSFng",
    "{PBKDF2-HMAC-SHA256}1000:Hjx7heg0oLGd0W8Csi3xr8dZynV5yka2UhHg+u6kqQiVrz+69m6bVQ==",
    "{PBKDF2_SHA256}AAAD6DuWJj7F2lX9LqIOx7iTIvLL/Bff/rrWnP84NcOdqFAtDkuiJMhu/rp1QrAny+4H1+dtZzAJOKVm11MOsdxFyYT4hN3GU7Ck9wkkPdrNpsxT+chEcj+JgJ2vn72J3Yd2IQyjpjzRh1DjgYNbLd5H8E4cKA3bEEB2zln+Ux0tl8YL7ObXDjX9FiJsRz8eCF/fi7N9dmBt/1OuO+nekJGTc5BM1Lt27WNchHpZgZJkSIfaOIvUG/h0oldj/+k9+LciHfHO6ntdSEerq6jlmDAlTap1K0WkEGO7w1UuhNF5pXz4rsLhlNAjCCTG7npdmBC9pVlKl/e7faqxQnD97Mn+wFTWXfmS/sN+qBE2aCFWWW9PS9WwUxUmskuOqj4NJtIGt9PgJ/9t2WPzcCpiae+3+9duOSHa7Zs0mSQg3pv1+8c9",
    "pbkdf2_sha256$1000$atBFjly0hxqU$EhD/UnjGJ36eZQTmh2t31C1BqwtDLAb98VuCvPmBZPs=",
    "pbkdf2_sha1$1000$DIii63glRfTU$QFivxtZALAM9X444O7tluLZHHwM=",
    "{SSHA}coGjfskWh61RRm5tZUSujYpHIzV/T+m9",
    "{SSHA256}SHXdy+ZnG5iq0QCe+sNtJy4jL13jlnSbcmVfFxSUkGYwRigFQEhJiQ==",
    "{ssha512}3MOfosL+JXO935M5GjeB19TGvTbLKAV6ilJ/aJFCeJwjnFgSroZe3wb9RTuOnXDQCC4782kogxcVmhMT07TeHn8vJYTQGmMM",
    "{SHA}/My3iu3YgJu9EzyruFb39HSN43E=",
];

#[test]
fn hashes_of_every_known_kind_fit_their_password_and_no_other() {
    for text in KNOWN {
        let hash = StoredHash::foreign(&Secret::new(*text)).expect(text);
        assert!(hash.fits(&Secret::new(PASSWORD)), "{text}");
        assert!(!hash.fits(&Secret::new("correct horse")), "{text}");
        assert!(!hash.fits(&Secret::new("")), "{text}");
        assert!(!hash.of_nobody().fits(&Secret::new(PASSWORD)), "{text}");
    }
}

#[test]
fn a_hash_that_would_freeze_a_core_is_refused_and_says_why() {
    for (text, word) in [
        (KNOWN[0].replace("$04$", "$16$"), "cost 15"),
        (KNOWN[6].replace("m=64", "m=1048576"), "256 MiB"),
        (KNOWN[6].replace("t=2", "t=4000000"), "2 GiB"),
        (KNOWN[11].replace("$1000$", "$4000000000$"), "5000000"),
        (KNOWN[19].replace("$1000$", "$5000001$"), "5000000"),
    ] {
        let error = StoredHash::foreign(&Secret::new(text)).err();
        let error = error.expect("refused").to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn what_is_no_hash_is_refused() {
    let nested = format!("{}$2b$04$x", "{CRYPT}".repeat(50));
    for text in [
        "",
        "plain text",
        "{MD5}xxxx",
        "{CRYPT}$6$salt$hash",
        "$2x$04$V1FwC4xa88bF5r2OTd5aMeok35Jf2vagldtM5l2cnXZyln4x3Jzuu",
        "$2b$04$short",
        "$2b$99$V1FwC4xa88bF5r2OTd5aMeok35Jf2vagldtM5l2cnXZyln4x3Jzuu",
        "$argon2id$v=19$m=64,t=2,p=2$r/kqExZMrZZ0eenOEHYohw",
        "$pbkdf2-sha256$0$AAAAAAAA$QQEVH0IfC40XRiKjo6f22nrLH.LWLVXaV/tw9FCcPkE",
        "$pbkdf2-md5$1$AAAAAAAA$QQEVH0IfC40XRiKjo6f22nrLH.LWLVXaV/tw9FCcPkE",
        "{SSHA}c2hvcnQ=",
        "{SSHA}/My3iu3YgJu9EzyruFb39HSN43E=",
        "{PBKDF2_SHA256}AAAA",
        "{",
        "{}",
        &nested,
        &"$".repeat(2000),
    ] {
        assert!(StoredHash::read(&Secret::new(text)).is_err(), "{text}");
    }
}

#[test]
fn a_long_password_counts_for_bcrypt_as_far_as_it_does_elsewhere() {
    let text = bcrypt::hash_with_salt("x".repeat(80), 4, [7; 16]).expect("a hash");
    let hash = StoredHash::read(&Secret::new(text.to_string())).expect("a hash");
    assert!(hash.fits(&Secret::new("x".repeat(72))));
    assert!(!hash.fits(&Secret::new("x".repeat(71))));
}
