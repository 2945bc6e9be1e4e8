//! Certificates with their server names, and those of authorities.

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use super::*;

/// A certificate and its key, in PEM.
pub(super) fn pair() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["a.example".to_owned()]).expect("parameters");
    let cert = params.self_signed(&key).expect("signs");
    (cert.pem(), key.serialize_pem())
}

/// An authority's certificate, in PEM.
pub(super) fn ca() -> String {
    ca_until(4096)
}

/// One that is good until this year.
fn ca_until(year: i32) -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.not_after = date_time_ymd(year, 1, 1);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&key).expect("signs").pem()
}

/// Makes a certificate with these server names.
pub(super) async fn certificate(api: &Api, snis: Value) -> Reply {
    let (cert, key) = pair();
    let body = json!({"cert":cert,"key":key,"snis":snis});
    api.send("POST", "/certificates", body).await
}

#[tokio::test]
async fn certificates_bring_their_server_names() {
    let api = Api::new().await;
    let made = certificate(&api, json!(["b.example", "*.a.example"]))
        .await
        .expect(201);
    assert_eq!(made.json()["snis"], json!(["*.a.example", "b.example"]));
    let id = made.id();
    let by_name = api.get("/certificates/b.example").await.expect(200);
    assert_eq!(by_name.id(), id);
    assert!(
        by_name.json()["key"]
            .as_str()
            .is_some_and(|key| key.contains("PRIVATE KEY"))
    );
    let path = format!("/certificates/{id}");
    let patched = api
        .send("PATCH", &path, json!({"snis":["c.example","b.example"]}))
        .await;
    assert_eq!(
        patched.expect(200).json()["snis"],
        json!(["b.example", "c.example"])
    );
    let snis = api.get("/snis").await.expect(200).json();
    assert_eq!(snis["data"].as_array().map(Vec::len), Some(2));
    let tagged = api
        .send("PATCH", &path, json!({"tags":["t"]}))
        .await
        .expect(200);
    assert_eq!(tagged.json()["snis"], json!(["b.example", "c.example"]));
    let nested = api
        .get("/certificates/c.example/snis")
        .await
        .expect(200)
        .json();
    assert_eq!(nested["data"].as_array().map(Vec::len), Some(2));
    api.get("/snis/b.example/certificate").await.expect(404);
    api.send("DELETE", &path, json!({})).await.expect(204);
    assert!(api.control.entities().snis.is_empty());
}

#[tokio::test]
async fn a_server_name_has_one_certificate() {
    let api = Api::new().await;
    let first = certificate(&api, json!(["a.example"]))
        .await
        .expect(201)
        .id();
    let refused = certificate(&api, json!(["A.example"]))
        .await
        .expect(400)
        .json();
    assert_eq!(refused["code"], 2);
    assert_eq!(
        refused["fields"]["snis"],
        format!("A.example already associated with existing certificate '{first}'")
    );
    assert_eq!(
        api.control.entities().certificates.len(),
        1,
        "nothing was made"
    );
    let refused = certificate(&api, json!(["x.example", "1.2.3.4", 5]))
        .await
        .expect(400);
    assert_eq!(
        refused.json()["fields"],
        json!({"snis":[null, "must not be an IP", "expected a string"]})
    );
    let body = json!({"name":"a.example","certificate":{"id":first}});
    let taken = api.send("POST", "/snis", body).await.expect(409).json();
    assert_eq!(
        taken["message"],
        "UNIQUE violation detected on '{name=\"a.example\"}'"
    );
}

#[tokio::test]
async fn a_certificate_is_made_under_a_server_name() {
    let api = Api::new().await;
    let (cert, key) = pair();
    let body = json!({"cert":cert,"key":key});
    let made = api
        .send("PUT", "/certificates/a.example", body.clone())
        .await
        .expect(200);
    assert_eq!(made.json()["snis"], json!(["a.example"]));
    let again = api
        .send("PUT", "/certificates/a.example", body)
        .await
        .expect(200);
    assert_eq!(again.id(), made.id());
    assert_eq!(api.control.entities().snis.len(), 1);
}

#[tokio::test]
async fn a_certificate_in_use_stays() {
    let api = Api::new().await;
    let id = certificate(&api, json!(null)).await.expect(201).id();
    let service = json!({"name":"s","url":"https://h","client_certificate":{"id":id}});
    api.send("POST", "/services", service).await.expect(201);
    let path = format!("/certificates/{id}");
    let refused = api
        .send("DELETE", &path, json!({}))
        .await
        .expect(400)
        .json();
    assert_eq!(refused["code"], 4);
    assert_eq!(
        refused["message"],
        "an existing 'services' entity references this 'certificates' entity"
    );
    assert_eq!(refused["fields"], json!({"@referenced_by":"services"}));
    let via = api.get("/services/s/client_certificate").await.expect(200);
    assert_eq!(via.id(), id);
    let nested = api
        .get(&format!("{path}/services"))
        .await
        .expect(200)
        .json();
    assert_eq!(nested["data"][0]["name"], "s");
    let body = json!({"client_certificate":null});
    api.send("PATCH", "/services/s", body).await.expect(200);
    api.send("DELETE", &path, json!({})).await.expect(204);
}

#[tokio::test]
async fn ca_certificates_are_told_apart_by_digest() {
    let api = Api::new().await;
    let cert = ca();
    let made = api
        .send("POST", "/ca_certificates", json!({"cert":cert}))
        .await
        .expect(201);
    let digest = made.json()["cert_digest"].clone();
    let refused = api
        .send("POST", "/ca_certificates", json!({"cert":cert}))
        .await;
    assert_eq!(
        refused.expect(409).json()["fields"],
        json!({"cert_digest":digest})
    );
    let service = json!({"name":"s","url":"https://h","ca_certificates":[made.id()]});
    api.send("POST", "/services", service).await.expect(201);
    let path = format!("/ca_certificates/{}", made.id());
    let refused = api
        .send("DELETE", &path, json!({}))
        .await
        .expect(400)
        .json();
    assert_eq!(refused["fields"], json!({"@referenced_by":"services"}));
    let dangling =
        json!({"url":"https://h","ca_certificates":["6ba7b810-9dad-11d1-80b4-00c04fd430c8"]});
    let refused = api
        .send("POST", "/services", dangling)
        .await
        .expect(400)
        .json();
    assert_eq!(refused["code"], 4);
    api.get("/ca_certificates/name").await.expect(404);
    let refused = api
        .send("PUT", "/ca_certificates/name", json!({"cert":ca()}))
        .await;
    assert_eq!(refused.expect(400).json()["code"], 1);
}

#[tokio::test]
async fn an_authority_whose_time_is_over_vouches_for_nobody_new() {
    let api = Api::new().await;
    let expired = json!({"cert": ca_until(2023)});
    let words = "schema violation (certificate expired, \"Not After\" time is in the past)";
    for path in ["/ca_certificates", "/schemas/ca_certificates/validate"] {
        let refused = api.send("POST", path, expired.clone()).await.expect(400);
        assert_eq!(refused.json()["message"], words, "{path}");
        let told = refused.json()["fields"]["@entity"].clone();
        assert_eq!(told.as_array().map(Vec::len), Some(1), "{path}");
    }
    let made = api
        .send("POST", "/ca_certificates", json!({"cert": ca_until(2024)}))
        .await
        .expect(201);
    let path = format!("/ca_certificates/{}", made.id());
    api.send("PATCH", &path, expired).await.expect(400);
    // What is there already can be labelled when its time is over, too.
    api.clock.advance(365 * 24 * 3600 * 1000);
    let label = json!({"tags": ["old"]});
    api.send("PATCH", &path, label).await.expect(200);
}
