//! Route files, from the disk to answers.

mod broken;
mod clients;
mod filters;
mod hostile;
mod nested;
mod reading;
mod referred;
mod signing_in;
mod throttling;

use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually, http};

/// A door with a directory `routes` of route files.
async fn door(files: &[(&str, &str)]) -> Door {
    door_with(Setup::new(), files).await
}

async fn door_with(setup: Setup, files: &[(&str, &str)]) -> Door {
    let mut door = laid_out(setup, files);
    door.start().await;
    door
}

fn laid_out(setup: Setup, files: &[(&str, &str)]) -> Door {
    let door = setup.lay_out();
    let main = std::fs::read_to_string(door.path("doorward.yaml")).expect("the file");
    let both = "routes.yaml\", \"@DIR@/routes\"";
    door.write("doorward.yaml", &main.replace("routes.yaml\"", both));
    std::fs::create_dir(door.path("routes")).expect("a directory");
    for (name, text) in files {
        put(&door, name, text);
    }
    door
}

/// Writes a file below `routes`, with the directories it needs.
fn put(door: &Door, name: &str, text: &str) {
    let name = format!("routes/{name}");
    let path = door.path(&name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    door.write(&name, text);
}

async fn upstream() -> Upstream {
    Upstream::start(|seen| Reply::Json(200, seen.json())).await
}

/// GET of a path, under a host that no entity route has.
async fn get(door: &Door, path: &str) -> Answer {
    door.get("files.test", path).await
}

/// GET with a header.
async fn get_with(door: &Door, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::client()
        .get(door.proxy_url(path))
        .header("host", "files.test");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http::send(request).await
}

/// Waits until `path` answers `status`.
async fn until(door: &Door, path: &str, status: u16) {
    eventually(&format!("{path} to answer {status}"), || async {
        (get(door, path).await.status == status).then_some(())
    })
    .await;
}

/// A route whose answer is its own: `status` for paths that begin with `path`.
fn answering(name: &str, path: &str, status: u16) -> String {
    format!(
        "{{\"name\": \"{name}\", \"condition\": \"${{find(request.uri.path, '^{path}')}}\",\n\
         \"handler\": {{\"type\": \"StaticResponseHandler\", \"config\": {{\"status\": {status}}}}}}}"
    )
}

/// What the admin listener says of a file.
async fn state(door: &Door, id: &str) -> serde_json::Value {
    let path = format!("/route-files/{}", id.replace('/', "%2F"));
    door.admin_get(&path).await.expect(200).json()
}

/// Waits until a file is in a state.
async fn until_state(door: &Door, id: &str, wanted: &str) -> serde_json::Value {
    eventually(&format!("{id} to be {wanted}"), || async {
        let path = format!("/route-files/{}", id.replace('/', "%2F"));
        let answer = door.admin_get(&path).await;
        (answer.status == 200 && answer.json()["state"] == wanted).then(|| answer.json())
    })
    .await
}
