//! Keys: made or brought along, and used where they lie. What leaves a vault is the public half.

use aws_lc_rs::digest::{Digest, SHA256, SHA384, SHA512};
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{
    KeyPairComponents, KeySize, OAEP_SHA1_MGF1SHA1, OAEP_SHA256_MGF1SHA256, OaepAlgorithm,
    OaepPrivateDecryptingKey, OaepPublicEncryptingKey, Pkcs1PrivateDecryptingKey,
    Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicKeyComponents,
};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P256K1_SHA256_FIXED,
    ECDSA_P256K1_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use serde_json::{Value, json};

use super::data::Refused;
use super::shelf::{Shelf, json_of};
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

type Run = fn(&mut Turn<'_>, &Shelf<'_>, &Asked) -> Result<Reply, Refused>;

/// What can be done with keys besides what every collection can.
pub(super) const WAYS: &[(Method, &str, &str, Run)] = &[
    (Method::POST, "{name}/create", "create", create),
    (Method::PUT, "{name}", "import", import),
    (Method::POST, "{name}/rotate", "rotate", rotate),
    (Method::GET, "{name}/rotationpolicy", "get", policy),
    (Method::POST, "{name}/{}/sign", "sign", sign),
    (Method::POST, "{name}/{}/verify", "verify", verify),
    (Method::POST, "{name}/{}/encrypt", "encrypt", encrypt),
    (Method::POST, "{name}/{}/decrypt", "decrypt", decrypt),
    (Method::POST, "{name}/{}/wrapkey", "wrapKey", encrypt),
    (Method::POST, "{name}/{}/unwrapkey", "unwrapKey", decrypt),
    // Of the newest version.
    (Method::POST, "{name}/sign", "sign", sign),
    (Method::POST, "{name}/verify", "verify", verify),
    (Method::POST, "{name}/encrypt", "encrypt", encrypt),
    (Method::POST, "{name}/decrypt", "decrypt", decrypt),
    (Method::POST, "{name}/wrapkey", "wrapKey", encrypt),
    (Method::POST, "{name}/unwrapkey", "unwrapKey", decrypt),
];

/// A curve: its name, the algorithm that clients name, and how it signs and verifies.
pub(super) struct Curve {
    name: &'static str,
    alg: &'static str,
    digest: &'static aws_lc_rs::digest::Algorithm,
    signing: &'static EcdsaSigningAlgorithm,
    verifying: &'static dyn VerificationAlgorithm,
}

static CURVES: [Curve; 4] = [
    Curve {
        name: "P-256",
        alg: "ES256",
        digest: &SHA256,
        signing: &ECDSA_P256_SHA256_FIXED_SIGNING,
        verifying: &ECDSA_P256_SHA256_FIXED,
    },
    Curve {
        name: "P-384",
        alg: "ES384",
        digest: &SHA384,
        signing: &ECDSA_P384_SHA384_FIXED_SIGNING,
        verifying: &ECDSA_P384_SHA384_FIXED,
    },
    Curve {
        name: "P-521",
        alg: "ES512",
        digest: &SHA512,
        signing: &ECDSA_P521_SHA512_FIXED_SIGNING,
        verifying: &ECDSA_P521_SHA512_FIXED,
    },
    Curve {
        name: "P-256K",
        alg: "ES256K",
        digest: &SHA256,
        signing: &ECDSA_P256K1_SHA256_FIXED_SIGNING,
        verifying: &ECDSA_P256K1_SHA256_FIXED,
    },
];

/// How RSA signs: the algorithm that clients name, its digest, its padding, and how it is verified.
struct Padding {
    alg: &'static str,
    digest: &'static aws_lc_rs::digest::Algorithm,
    signing: &'static dyn RsaEncoding,
    verifying: &'static dyn VerificationAlgorithm,
}

const fn padding(
    alg: &'static str,
    digest: &'static aws_lc_rs::digest::Algorithm,
    signing: &'static dyn RsaEncoding,
    verifying: &'static dyn VerificationAlgorithm,
) -> Padding {
    Padding {
        alg,
        digest,
        signing,
        verifying,
    }
}

static PADDINGS: [Padding; 6] = [
    padding(
        "RS256",
        &SHA256,
        &RSA_PKCS1_SHA256,
        &RSA_PKCS1_2048_8192_SHA256,
    ),
    padding(
        "RS384",
        &SHA384,
        &RSA_PKCS1_SHA384,
        &RSA_PKCS1_2048_8192_SHA384,
    ),
    padding(
        "RS512",
        &SHA512,
        &RSA_PKCS1_SHA512,
        &RSA_PKCS1_2048_8192_SHA512,
    ),
    padding("PS256", &SHA256, &RSA_PSS_SHA256, &RSA_PSS_2048_8192_SHA256),
    padding("PS384", &SHA384, &RSA_PSS_SHA384, &RSA_PSS_2048_8192_SHA384),
    padding("PS512", &SHA512, &RSA_PSS_SHA512, &RSA_PSS_2048_8192_SHA512),
];

/// A private key that can be used.
pub(super) enum Key {
    Rsa(RsaKeyPair),
    Curve(&'static Curve, EcdsaKeyPair),
}

fn unusable(what: &str) -> Refused {
    Refused::bad(format!("The key cannot be used: {what}."))
}

impl Key {
    /// A new key as somebody describes it: `kty`, `key_size`, `crv`.
    pub(super) fn generate(asked: &Value) -> Result<Key, Refused> {
        let kind = asked["kty"].as_str().unwrap_or("RSA");
        match kind.trim_end_matches("-HSM") {
            "RSA" => {
                let size = match asked["key_size"].as_u64().unwrap_or(2048) {
                    2048 => KeySize::Rsa2048,
                    3072 => KeySize::Rsa3072,
                    4096 => KeySize::Rsa4096,
                    other => return Err(Refused::bad(format!("Invalid key size: {other}"))),
                };
                let pair = RsaKeyPair::generate(size).map_err(|_| unusable("it cannot be made"))?;
                Ok(Key::Rsa(pair))
            }
            "EC" => {
                let curve = curve(asked["crv"].as_str().unwrap_or("P-256"))?;
                let pair = EcdsaKeyPair::generate(curve.signing);
                Ok(Key::Curve(
                    curve,
                    pair.map_err(|_| unusable("it cannot be made"))?,
                ))
            }
            other => Err(Refused::bad(format!("Unsupported kty: {other}"))),
        }
    }

    /// A key as it was written by [`Key::written`].
    fn read(private: &Value) -> Result<Key, Refused> {
        let lost = || unusable("its private half is not here");
        let der = private["pkcs8"].as_str().ok_or_else(lost)?;
        let der = STANDARD.decode(der).map_err(|_| lost())?;
        match private["crv"].as_str() {
            None => RsaKeyPair::from_pkcs8(&der)
                .map(Key::Rsa)
                .map_err(|_| lost()),
            Some(name) => {
                let curve = curve(name)?;
                let pair = EcdsaKeyPair::from_pkcs8(curve.signing, &der).map_err(|_| lost())?;
                Ok(Key::Curve(curve, pair))
            }
        }
    }

    /// A private key in PKCS #8, of whatever sort.
    pub(super) fn of_pkcs8(der: &[u8]) -> Result<Key, Refused> {
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der) {
            return Ok(Key::Rsa(pair));
        }
        let found = CURVES.iter().find_map(|curve| {
            let pair = EcdsaKeyPair::from_pkcs8(curve.signing, der).ok()?;
            Some(Key::Curve(curve, pair))
        });
        found.ok_or_else(|| unusable("it is neither RSA nor of a known curve"))
    }

    /// PKCS #8.
    pub(super) fn der(&self) -> Result<Vec<u8>, Refused> {
        let lost = |_| unusable("it cannot be written");
        match self {
            Key::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(lost)?;
                Ok(der.as_ref().to_vec())
            }
            Key::Curve(_, pair) => Ok(pair.to_pkcs8v1().map_err(lost)?.as_ref().to_vec()),
        }
    }

    /// What only the vault knows.
    pub(super) fn written(&self) -> Result<Value, Refused> {
        let curve = match self {
            Key::Rsa(_) => Value::Null,
            Key::Curve(curve, _) => json!(curve.name),
        };
        Ok(json!({"pkcs8": STANDARD.encode(self.der()?), "crv": curve}))
    }

    /// The public half as a JWK.
    fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Key::Rsa(pair) => {
                let public = pair.public_key();
                json!({"kty": "RSA", "n": encode(public.modulus().big_endian_without_leading_zero()),
                    "e": encode(public.exponent().big_endian_without_leading_zero())})
            }
            Key::Curve(curve, pair) => {
                // A point that is not compressed: 4, x, y.
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve.name, "x": encode(x), "y": encode(y)})
            }
        }
    }

    fn operations(&self) -> Value {
        match self {
            Key::Rsa(_) => json!([
                "encrypt",
                "decrypt",
                "sign",
                "verify",
                "wrapKey",
                "unwrapKey"
            ]),
            Key::Curve(..) => json!(["sign", "verify"]),
        }
    }
}

fn curve(name: &str) -> Result<&'static Curve, Refused> {
    let found = CURVES.iter().find(|curve| curve.name == name);
    found.ok_or_else(|| Refused::bad(format!("Unsupported curve: {name}")))
}

/// Keeps a key as a new version; gives its bundle.
pub(super) fn keep(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    version: &str,
    key: &Key,
    asked: &Value,
) -> Result<Value, Refused> {
    let mut jwk = key.jwk();
    if let Some(kind) = asked["kty"].as_str() {
        jwk["kty"] = json!(kind);
    }
    jwk["kid"] = json!(format!("{}/{version}", shelf.address(turn, "keys")));
    jwk["key_ops"] = match asked["key_ops"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        true => asked["key_ops"].clone(),
        false => key.operations(),
    };
    let mut bundle =
        json!({"key": jwk, "attributes": shelf.attributes(turn, &asked["attributes"])});
    for field in ["tags", "managed"] {
        if !asked[field].is_null() {
            bundle[field] = asked[field].clone();
        }
    }
    shelf.keep(turn, version, &bundle, &key.written()?);
    Ok(bundle)
}

fn create(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    shelf.check_name(turn)?;
    let body = json_of(asked)?;
    let key = Key::generate(&body)?;
    let version = turn.chance.hex(32);
    keep(turn, shelf, &version, &key, &body).map(Reply::ok)
}

fn import(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    shelf.check_name(turn)?;
    let mut body = json_of(asked)?;
    let key = of_jwk(&body["key"])?;
    body["key_ops"] = body["key"]["key_ops"].clone();
    let version = turn.chance.hex(32);
    keep(turn, shelf, &version, &key, &body).map(Reply::ok)
}

fn of_jwk(jwk: &Value) -> Result<Key, Refused> {
    let part = |name: &str| {
        let bytes = jwk[name]
            .as_str()
            .and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok());
        bytes.ok_or_else(|| Refused::bad(format!("The key has no {name}.")))
    };
    if jwk["kty"]
        .as_str()
        .is_some_and(|kind| kind.starts_with("EC"))
    {
        let curve = curve(jwk["crv"].as_str().unwrap_or_default())?;
        let point = [vec![4], part("x")?, part("y")?].concat();
        let pair =
            EcdsaKeyPair::from_private_key_and_public_key(curve.signing, &part("d")?, &point);
        return Ok(Key::Curve(
            curve,
            pair.map_err(|_| unusable("its numbers do not fit"))?,
        ));
    }
    let components = KeyPairComponents {
        public_key: PublicKeyComponents {
            n: part("n")?,
            e: part("e")?,
        },
        d: part("d")?,
        p: part("p")?,
        q: part("q")?,
        dP: part("dp")?,
        dQ: part("dq")?,
        qInv: part("qi")?,
    };
    let pair = RsaKeyPair::from_components(&components);
    pair.map(Key::Rsa)
        .map_err(|_| unusable("its numbers do not fit"))
}

/// A new version of the same sort.
fn rotate(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    let (_, entry) = shelf.find(turn)?;
    let old = &entry["bundle"];
    let bits = old["key"]["n"]
        .as_str()
        .and_then(|n| URL_SAFE_NO_PAD.decode(n).ok());
    let asked = json!({"kty": old["key"]["kty"], "crv": old["key"]["crv"], "key_size": bits.map(|n| n.len() * 8),
        "key_ops": old["key"]["key_ops"], "tags": old["tags"]});
    let key = Key::generate(&asked)?;
    let version = turn.chance.hex(32);
    keep(turn, shelf, &version, &key, &asked).map(Reply::ok)
}

/// Keys are not rotated by themselves.
fn policy(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    shelf.find(turn)?;
    let id = format!("{}/rotationpolicy", shelf.address(turn, "keys"));
    let actions = json!([{"trigger": {"timeBeforeExpiry": "P30D"}, "action": {"type": "Notify"}}]);
    Ok(Reply::ok(
        json!({"id": id, "lifetimeActions": actions, "attributes": {"expiryTime": null}}),
    ))
}

/// A key for an operation, with what the operation is given.
struct Use {
    key: Key,
    kid: Value,
    alg: String,
    value: Vec<u8>,
    body: Value,
}

fn begin(turn: &Turn<'_>, shelf: &Shelf<'_>, asked: &Asked, word: &str) -> Result<Use, Refused> {
    let body = json_of(asked)?;
    let (_, entry) = shelf.find(turn)?;
    let bundle = &entry["bundle"];
    let may = bundle["key"]["key_ops"].as_array().into_iter().flatten();
    if bundle["attributes"]["enabled"] == false {
        let message = format!("Operation {word} is not allowed on a disabled key.");
        return Err(Refused::new(403, "Forbidden", message).inner("KeyDisabled"));
    }
    if !may
        .into_iter()
        .any(|op| op.as_str().is_some_and(|op| op.eq_ignore_ascii_case(word)))
    {
        let message = format!("Operation {word} is not permitted on this key.");
        return Err(Refused::new(403, "Forbidden", message).inner("KeyOperationForbidden"));
    }
    let field = if word == "verify" { "digest" } else { "value" };
    let value = decoded(&body, field)?;
    Ok(Use {
        key: Key::read(&entry["private"])?,
        kid: bundle["key"]["kid"].clone(),
        alg: body["alg"].as_str().unwrap_or_default().to_owned(),
        value,
        body,
    })
}

fn decoded(body: &Value, field: &str) -> Result<Vec<u8>, Refused> {
    let text = body[field]
        .as_str()
        .unwrap_or_default()
        .trim_end_matches('=');
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .filter(|bytes| !bytes.is_empty());
    bytes.ok_or_else(|| Refused::bad(format!("Property {field} is missing or no base64url.")))
}

fn no_algorithm(alg: &str) -> Refused {
    Refused::bad(format!("Algorithm '{alg}' is not supported with this key."))
}

fn padding_of(alg: &str) -> Result<&'static Padding, Refused> {
    let found = PADDINGS.iter().find(|padding| padding.alg == alg);
    found.ok_or_else(|| no_algorithm(alg))
}

fn digest(
    bytes: &[u8],
    algorithm: &'static aws_lc_rs::digest::Algorithm,
) -> Result<Digest, Refused> {
    let wrong = |_| Refused::bad("Invalid length of 'value' for the algorithm.");
    Digest::import_less_safe(bytes, algorithm).map_err(wrong)
}

fn sign(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    let using = begin(turn, shelf, asked, "sign")?;
    let failed = |_| unusable("it does not sign this");
    let signature = match &using.key {
        Key::Rsa(pair) => {
            let padding = padding_of(&using.alg)?;
            let digest = digest(&using.value, padding.digest)?;
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign_digest(padding.signing, &digest, &mut signature)
                .map_err(failed)?;
            signature
        }
        Key::Curve(curve, pair) if curve.alg == using.alg => {
            let digest = digest(&using.value, curve.digest)?;
            pair.sign_digest(&digest).map_err(failed)?.as_ref().to_vec()
        }
        Key::Curve(..) => return Err(no_algorithm(&using.alg)),
    };
    Ok(result(&using, &signature))
}

fn result(using: &Use, bytes: &[u8]) -> Reply {
    Reply::ok(json!({"kid": using.kid, "value": URL_SAFE_NO_PAD.encode(bytes), "alg": using.alg}))
}

fn verify(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    let using = begin(turn, shelf, asked, "verify")?;
    let signature = decoded(&using.body, "value")?;
    let (algorithm, digest, public) = match &using.key {
        Key::Rsa(pair) => {
            let padding = padding_of(&using.alg)?;
            let digest = digest(&using.value, padding.digest)?;
            (padding.verifying, digest, pair.public_key().as_ref())
        }
        Key::Curve(curve, pair) if curve.alg == using.alg => {
            let digest = digest(&using.value, curve.digest)?;
            (curve.verifying, digest, pair.public_key().as_ref())
        }
        Key::Curve(..) => return Err(no_algorithm(&using.alg)),
    };
    let verified = UnparsedPublicKey::new(algorithm, public).verify_digest(&digest, &signature);
    Ok(Reply::ok(json!({ "value": verified.is_ok() })))
}

/// The padding of an encryption; none is the old one of PKCS #1.
fn oaep(alg: &str) -> Result<Option<&'static OaepAlgorithm>, Refused> {
    match alg {
        "RSA1_5" => Ok(None),
        "RSA-OAEP" => Ok(Some(&OAEP_SHA1_MGF1SHA1)),
        "RSA-OAEP-256" => Ok(Some(&OAEP_SHA256_MGF1SHA256)),
        other => Err(no_algorithm(other)),
    }
}

fn word_of(asked: &Asked, crypt: &'static str, wrap: &'static str) -> &'static str {
    match asked.path.to_lowercase().ends_with("wrapkey") {
        true => wrap,
        false => crypt,
    }
}

fn encrypt(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    let using = begin(turn, shelf, asked, word_of(asked, "encrypt", "wrapKey"))?;
    let failed = |_| Refused::bad("The value is too long for this key.");
    let public = decrypting(&using)?.public_key();
    let mut room = vec![0; public.key_size_bytes()];
    let bytes = match oaep(&using.alg)? {
        Some(oaep) => OaepPublicEncryptingKey::new(public).and_then(|key| {
            key.encrypt(oaep, &using.value, &mut room, None)
                .map(|b| b.to_vec())
        }),
        None => Pkcs1PublicEncryptingKey::new(public)
            .and_then(|key| key.encrypt(&using.value, &mut room).map(|b| b.to_vec())),
    };
    Ok(result(&using, &bytes.map_err(failed)?))
}

fn decrypt(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    let using = begin(turn, shelf, asked, word_of(asked, "decrypt", "unwrapKey"))?;
    let failed = |_| Refused::bad("The value cannot be decrypted with this key.");
    let private = decrypting(&using)?;
    let mut room = vec![0; private.key_size_bytes()];
    let bytes = match oaep(&using.alg)? {
        Some(oaep) => OaepPrivateDecryptingKey::new(private).and_then(|key| {
            key.decrypt(oaep, &using.value, &mut room, None)
                .map(|b| b.to_vec())
        }),
        None => Pkcs1PrivateDecryptingKey::new(private)
            .and_then(|key| key.decrypt(&using.value, &mut room).map(|b| b.to_vec())),
    };
    Ok(result(&using, &bytes.map_err(failed)?))
}

fn decrypting(using: &Use) -> Result<PrivateDecryptingKey, Refused> {
    match &using.key {
        Key::Rsa(_) => PrivateDecryptingKey::from_pkcs8(&using.key.der()?)
            .map_err(|_| unusable("it does not encrypt")),
        Key::Curve(..) => Err(no_algorithm(&using.alg)),
    }
}
