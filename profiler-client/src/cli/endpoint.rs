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
            "only http:// is spoken: name a collector on this machine, which sends on with TLS, such as http://localhost:4317"
                .to_owned(),
        );
    }
    let host = uri
        .host()
        .filter(|host| !host.is_empty())
        .ok_or("a host is missing")?;
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err("a path is for OTLP over HTTP, this is gRPC: leave it out".to_owned());
    }
    let port = uri.port_u16().unwrap_or(PORT);
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
        ] {
            assert!(said(text).is_err(), "{text}");
        }
    }
}
