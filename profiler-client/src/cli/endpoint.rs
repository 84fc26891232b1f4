//! Where a collector of OpenTelemetry listens.

use tonic::transport::Uri;

/// The port of OTLP over gRPC, by its specification.
const PORT: u16 = 4317;

/// The address of a collector: `http://localhost:4317`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint(pub String);

/// Reads `--otlp`: a URL, or a host with or without a port.
///
/// # Errors
///
/// In words, where it is no address that is reached without TLS.
pub fn parse(text: &str) -> Result<OtlpEndpoint, String> {
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    if uri.scheme_str() != Some("http") {
        return Err(
            "only http:// is supported: name a collector on this machine, which sends on with TLS, such as http://localhost:4317"
                .to_owned(),
        );
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = uri
        .host()
        .filter(|host| !host.is_empty())
        .ok_or("a host is missing")?;
    // A URI may have a user, and anything for a port.
    let port = match authority.strip_prefix(host) {
        None => {
            return Err("names of users are not supported: leave out what stands before the @".to_owned());
        }
        Some("" | ":") => PORT,
        Some(port) => {
            let port = port.strip_prefix(':').and_then(|port| port.parse().ok());
            port.filter(|port| *port > 0)
                .ok_or("the port is a number up to 65535")?
        }
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err("a path is for OTLP over HTTP, this is gRPC: leave it out".to_owned());
    }
    Ok(OtlpEndpoint(format!("http://{host}:{port}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_enough() {
        let said = |text: &str| parse(text).map(|OtlpEndpoint(url)| url);
        for (text, url) in [
            ("localhost", "http://localhost:4317"),
            ("localhost:14317", "http://localhost:14317"),
            ("http://127.0.0.1:4317/", "http://127.0.0.1:4317"),
            ("[::1]:7", "http://[::1]:7"),
            ("[::1]", "http://[::1]:4317"),
        ] {
            assert_eq!(said(text), Ok(url.to_owned()), "{text}");
        }
        for text in [
            "",
            "https://x",
            "http://x/v1/metrics",
            "x y",
            "ftp://x",
            "http://x?y",
            "x:431700",
            "x:abc",
            "x:0",
            "me:secret@x",
            "me@x:4317",
        ] {
            assert!(said(text).is_err(), "{text}");
        }
    }
}
