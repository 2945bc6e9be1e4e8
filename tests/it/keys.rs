//! Keys and key sets over the Admin API and in files.

use serde_json::{Value, json};

use crate::support::{Door, Setup, http};

/// A key of P-256 (RFC 7517 appendix A.2).
fn jwk(kid: &str) -> String {
    json!({"kty": "EC", "crv": "P-256", "kid": kid,
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
        "d": "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE"})
    .to_string()
}

async fn refused(door: &Door, key: &Value, why: &str) {
    let answer = door.admin_post("/keys", key).await.expect(400);
    assert!(answer.body.contains(why), "{}", answer.body);
}

#[tokio::test]
async fn what_is_wrong_with_a_jwk_is_told_of_the_whole_key_one_thing_at_a_time() {
    let door = Setup::new().start().await;
    for (key, why) in [
        (
            json!({"kid": "35", "jwk": "\"kid\":test"}),
            "could not json decode jwk string",
        ),
        (
            json!({"kid": "other", "jwk": "{\"kid\":\"34\"}"}),
            "kid in jwk.kid must be equal to keys.kid",
        ),
        (
            json!({"kid": "34", "jwk": "{\"kid\":\"34\"}"}),
            "could not load JWK, likely not a valid key",
        ),
    ] {
        let answer = door.admin_post("/keys", &key).await.expect(400).json();
        assert_eq!(answer["message"], format!("schema violation ({why})"));
        assert_eq!(answer["fields"], json!({"@entity": [why]}));
    }
}

#[tokio::test]
async fn a_key_belongs_to_its_set_and_goes_with_it() {
    let door = Setup::new().start().await;
    let set = json!({"name": "signing"});
    let set = door.admin_post("/key-sets", &set).await.expect(201).json();
    let key = json!({"name": "first", "kid": "k1", "jwk": jwk("k1")});
    let path = "/key-sets/signing/keys";
    let made = door.admin_post(path, &key).await.expect(201).json();
    assert_eq!(made["set"]["id"], set["id"]);
    // The same kid in the same set is another's; elsewhere it is not.
    let again = json!({"kid": "k1", "jwk": jwk("k1")});
    door.admin_post(path, &again).await.expect(409);
    door.admin_post("/keys", &again).await.expect(201);
    let shown = door.admin_get("/keys/first/set").await.expect(200).json();
    assert_eq!(shown["name"], "signing");
    door.admin_delete("/key-sets/signing").await.expect(204);
    door.admin_get("/keys/first").await.expect(404);
    let left = door.admin_get("/keys").await.expect(200).json();
    assert_eq!(left["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn private_halves_are_stored_and_not_shown() {
    let door = Setup::new().start().await;
    let key = json!({"name": "first", "kid": "k1", "jwk": jwk("k1")});
    let made = door.admin_post("/keys", &key).await.expect(201);
    assert!(!made.body.contains("870MB6gf"), "{}", made.body);
    let shown = door.admin_get("/keys/first").await.expect(200).json();
    let text = shown["jwk"].as_str().expect("a text").to_owned();
    let inside: Value = serde_json::from_str(&text).expect("a JWK");
    assert_eq!(inside["d"], "**");
    assert_eq!(inside["kid"], "k1");
    // What is not shown can't be written back in its place by accident.
    let change = |body: Value| {
        http::client()
            .patch(door.admin_url("/keys/first"))
            .json(&body)
    };
    let answer = http::send(change(json!({ "jwk": text }))).await.expect(400);
    assert!(
        answer.body.contains("stands for a text that is not shown"),
        "{}",
        answer.body
    );
    http::send(change(json!({"tags": ["a"]}))).await.expect(200);
    let export = door.admin_get("/config").await.expect(200).body;
    assert!(export.contains("870MB6gf"), "a backup is whole");
}

#[tokio::test]
async fn what_is_no_key_is_refused_with_the_imitated_words() {
    let door = Setup::new().start().await;
    for (key, why) in [
        (
            json!({"kid": "a", "jwk": "{"}),
            "could not json decode jwk string",
        ),
        (
            json!({"kid": "a", "jwk": "{\"kty\":\"EC\",\"kid\":\"a\"}"}),
            "could not load JWK, likely not a valid key",
        ),
        (
            json!({"kid": "b", "jwk": jwk("a")}),
            "kid in jwk.kid must be equal to keys.kid",
        ),
        (
            json!({"kid": "a"}),
            "at least one of these fields must be non-empty: 'jwk', 'pem'",
        ),
        (
            json!({"kid": "a", "jwk": jwk("a"), "pem": {"public_key": "x"}}),
            "could not load public key",
        ),
        (
            json!({"kid": "a", "pem": {"private_key": "x"}}),
            "could not load private key",
        ),
        (json!({"jwk": jwk("a")}), "required field missing"),
    ] {
        refused(&door, &key, why).await;
    }
}

#[tokio::test]
async fn files_declare_sets_with_their_keys() {
    let mut door = Setup::new().lay_out();
    let text = json!({"_format_version": "3.0",
        "key_sets": [{"name": "signing", "keys": [{"kid": "k1", "name": "one", "jwk": jwk("k1")}]}],
        "keys": [{"kid": "k2", "name": "two", "set": "signing", "jwk": jwk("k2")}]});
    door.write("keys.json", &text.to_string());
    door.edit(
        "doorward.yaml",
        "routes.yaml\"]",
        "routes.yaml\", \"keys.json\"]",
    );
    door.start().await;
    for name in ["one", "two"] {
        let set = door.admin_get(&format!("/keys/{name}/set")).await;
        assert_eq!(set.expect(200).json()["name"], "signing");
    }
}
