//! Addresses as the command line takes them: short where the rest is plain.

use url::Url;

/// Where to listen: `:8000` and `8000` are every address of this machine,
/// `HOST:PORT` is what it says.
pub(super) fn listened(text: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "'{text}' is no address to listen on: use :8000 for every address, or 127.0.0.1:8000"
        )
    };
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port: u16 = port.parse().map_err(|_| wrong())?;
    match host {
        "" => Ok(format!("0.0.0.0:{port}")),
        "localhost" => Ok(format!("127.0.0.1:{port}")),
        host => {
            let address = format!("{host}:{port}");
            let parsed: Result<std::net::SocketAddr, _> = address.parse();
            parsed.map(|_| address).map_err(|_| wrong())
        }
    }
}

/// Where requests go: `9000` and `:9000` are ports of this machine, `HOST:PORT` is
/// plain HTTP, and an address with `http` or `https` is what it says.
pub(super) fn upstream(text: &str) -> Result<Url, String> {
    let wrong = |why: &str| {
        format!("'{text}' is no upstream{why}: use :9000, 10.0.0.5:9000 or https://api.example.com")
    };
    let whole = if text.contains("://") {
        text.to_owned()
    } else if let Some(port) = text.strip_prefix(':') {
        format!("http://127.0.0.1:{port}")
    } else if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("http://127.0.0.1:{text}")
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&whole).map_err(|error| wrong(&format!(" ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(" (its scheme is neither http nor https)"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(" (it has a user)"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong(" (it has a query or a fragment)"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_listened_on_at_every_address() {
        assert_eq!(listened(":8000").as_deref(), Ok("0.0.0.0:8000"));
        assert_eq!(listened("8000").as_deref(), Ok("0.0.0.0:8000"));
        assert_eq!(listened("localhost:1").as_deref(), Ok("127.0.0.1:1"));
        assert_eq!(listened("[::1]:80").as_deref(), Ok("[::1]:80"));
        for wrong in ["", ":", "host:80", "::1", ":65536", "127.0.0.1:http"] {
            assert!(listened(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_upstream_is_a_port_a_host_or_a_url() {
        let of = |text| upstream(text).map(String::from);
        assert_eq!(of(":9000").as_deref(), Ok("http://127.0.0.1:9000/"));
        assert_eq!(of("9000").as_deref(), Ok("http://127.0.0.1:9000/"));
        assert_eq!(
            of("127.0.0.1:9000/mcp").as_deref(),
            Ok("http://127.0.0.1:9000/mcp")
        );
        assert_eq!(of("api.test").as_deref(), Ok("http://api.test/"));
        assert_eq!(
            of("https://api.test/v2").as_deref(),
            Ok("https://api.test/v2")
        );
        for wrong in ["", "ftp://a", "http://", "http://u:p@a", "http://a?b", ":x"] {
            assert!(upstream(wrong).is_err(), "{wrong}");
        }
    }
}
