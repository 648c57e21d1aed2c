//! `kyanite token`: bootstrap tokens, as secrets of kube-system.

use serde_json::{Value, json};

use crate::cli::{Place, TokenCommand, TokenCreate};
use crate::client::Client;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::join_tokens::{self, Token};
use crate::kubeconfig;
use crate::pki::{Authority, Pki};
use crate::printer::{Printer, table};

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// Runs a token command.
pub(super) async fn run(command: TokenCommand, printer: &Printer) -> Result<()> {
    match command {
        TokenCommand::Create(create) => make(&create, printer).await,
        TokenCommand::List(place) => list(&place, printer).await,
        TokenCommand::Delete { place, token } => delete(&place, &token, printer).await,
    }
}

async fn make(create: &TokenCreate, printer: &Printer) -> Result<()> {
    if let Some(bad) = create.groups.iter().find(|g| !join_tokens::is_group(g)) {
        return Err(Failure::new(
            Code::Usage,
            format!("`{bad}` is not a group that a bootstrap token can have"),
        )
        .hint("groups start with `system:bootstrappers:` and have only a-z, 0-9, - and :"));
    }
    let dir = DataDir::find(&create.place)?;
    let client = Client::of_running(&dir).await?;
    let token = Token::random(&mut rand::rng());
    let expires = join_tokens::expiry(jiff::Timestamp::now(), create.ttl);
    let secret = token.to_secret(&create.groups, &create.description, expires);
    client.create(SECRETS, &secret).await?;
    let config = joining_kubeconfig(&dir, &token)?;
    let text = match create.print_kubeconfig {
        true => objects::yaml::to_string(&config),
        false => token.text(),
    };
    let mut value = json!({"token": token.text(), "id": token.id, "groups": create.groups,
        "expires": expires.map(|at| at.to_string())});
    if create.print_kubeconfig {
        value["kubeconfig"] = config;
    }
    printer.result(text.trim_end(), &value);
    Ok(())
}

fn joining_kubeconfig(dir: &DataDir, token: &Token) -> Result<Value> {
    let server = kubeconfig::server_of(&dir.kubeconfig())?;
    let pki = Pki::at(dir.pki(), std::time::SystemTime::now());
    let user = json!({"token": token.text()});
    let bundle = pki.authority(Authority::Cluster).cert;
    kubeconfig::with_user(dir.name(), &server, &bundle, ("kubelet-bootstrap", user))
}

async fn list(place: &Place, printer: &Printer) -> Result<()> {
    let client = Client::of_running(&DataDir::find(place)?).await?;
    let path = format!(
        "{SECRETS}?fieldSelector=type%3D{}",
        join_tokens::SECRET_TYPE
    );
    let found = client.get(&path).await?;
    let tokens: Vec<Value> = found["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(shown)
        .collect();
    let text = |token: &Value, field: &str| token[field].as_str().unwrap_or("-").to_owned();
    let rows = tokens.iter().map(|token| {
        ["id", "expires", "groups", "description"]
            .map(|field| text(token, field))
            .to_vec()
    });
    let shown = table(&["ID", "EXPIRES", "GROUPS", "DESCRIPTION"], rows);
    printer.result(&shown, &json!(tokens));
    Ok(())
}

// A token without its secret half.
fn shown(secret: &Value) -> Value {
    use base64::Engine as _;
    let data = |key: &str| {
        let bytes = secret["data"][key].as_str()?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(bytes)
            .ok()?;
        String::from_utf8(bytes).ok()
    };
    json!({"id": data("token-id"), "expires": data("expiration"),
        "groups": data("auth-extra-groups"), "description": data("description")})
}

async fn delete(place: &Place, token: &str, printer: &Printer) -> Result<()> {
    let Some(id) = join_tokens::id_of(token) else {
        // What was typed may be most of a credential.
        return Err(Failure::new(Code::Usage, "that is no token id")
            .hint("an id has six characters of a-z and 0-9; `kyanite token list` shows them"));
    };
    let client = Client::of_running(&DataDir::find(place)?).await?;
    let path = format!("{SECRETS}/{}", join_tokens::secret_name(id));
    client.delete(&path).await?;
    printer.result(&format!("token {id} is gone"), &json!({"deleted": id}));
    Ok(())
}
