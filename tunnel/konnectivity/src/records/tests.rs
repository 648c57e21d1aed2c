#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::future::poll_fn;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::*;

type Tunnel = Records<DuplexStream>;

/// What a client and a server of the same authority need.
struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

fn ends(suites: Vec<SupportedCipherSuite>) -> Ends {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: suites,
        ..aws_lc_rs::default_provider()
    });
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["server".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    server.enable_secret_extraction = true;
    Ends {
        client: Arc::new(client),
        server: Arc::new(server),
    }
}

fn default_ends() -> Ends {
    ends(aws_lc_rs::default_provider().cipher_suites)
}

fn name() -> ServerName<'static> {
    ServerName::try_from("server").unwrap()
}

impl Ends {
    // Ours is the client, rustls' own stream the server.
    async fn with_their_server(&self, width: usize) -> (Tunnel, TlsStream<DuplexStream>) {
        let (near, far) = duplex(width);
        let acceptor = TlsAcceptor::from(Arc::clone(&self.server));
        let ours = connect(near, Arc::clone(&self.client), name());
        let (ours, theirs) = tokio::join!(ours, acceptor.accept(far));
        (ours.unwrap(), theirs.unwrap().into())
    }

    async fn with_their_client(&self, width: usize) -> (Tunnel, TlsStream<DuplexStream>) {
        let (near, far) = duplex(width);
        let connector = TlsConnector::from(Arc::clone(&self.client));
        let ours = accept(near, Arc::clone(&self.server));
        let (ours, theirs) = tokio::join!(ours, connector.connect(name(), far));
        (ours.unwrap(), theirs.unwrap().into())
    }

    async fn both_ours(&self) -> (Tunnel, Tunnel) {
        let (near, far) = duplex(1 << 20);
        let client = connect(near, Arc::clone(&self.client), name());
        let server = accept(far, Arc::clone(&self.server));
        let (client, server) = tokio::join!(client, server);
        (client.unwrap(), server.unwrap())
    }
}

// Sends and receives at once, until as much has come as was sent.
async fn exchange(tunnel: &mut Tunnel, bytes: &[u8], cut: usize) -> io::Result<Vec<u8>> {
    let mut pieces = Pieces::default();
    for piece in bytes.chunks(cut) {
        pieces.push(Bytes::copy_from_slice(piece));
    }
    let mut came = Vec::new();
    poll_fn(|cx| {
        if let Poll::Ready(Err(error)) = tunnel.poll_output(&mut pieces, cx) {
            return Poll::Ready(Err(error));
        }
        while came.len() < bytes.len() {
            let more = ready!(tunnel.poll_input(cx, &mut |data| {
                came.extend_from_slice(data);
                Ok(())
            }))?;
            assert!(more, "the end came before everything had come");
        }
        Poll::Ready(Ok(()))
    })
    .await?;
    Ok(came)
}

// How it ends for someone who only listens.
async fn failed(tunnel: &mut Tunnel) -> io::Error {
    loop {
        match receive(tunnel).await {
            Ok((_, more)) => assert!(more, "it ended well"),
            Err(error) => return error,
        }
    }
}

// What one read brings, and whether more may come.
async fn receive(tunnel: &mut Tunnel) -> io::Result<(Vec<u8>, bool)> {
    let mut came = Vec::new();
    let more = poll_fn(|cx| {
        tunnel.poll_input(cx, &mut |data| {
            came.extend_from_slice(data);
            Ok(())
        })
    })
    .await?;
    Ok((came, more))
}

async fn echo(mut stream: TlsStream<DuplexStream>) {
    let mut buffer = vec![0; 20_000];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..count]).await.unwrap();
        stream.flush().await.unwrap();
    }
}

// What comes back from an echo, and the state our side ends in.
async fn echoed(
    mut ours: Tunnel,
    theirs: TlsStream<DuplexStream>,
    sent: &[u8],
    cut: usize,
) -> (Vec<u8>, Session) {
    let talk = async {
        let came = exchange(&mut ours, sent, cut).await.unwrap();
        // Without its socket, which is the echo's end.
        (came, ours.session)
    };
    tokio::join!(talk, echo(theirs)).0
}

fn noise(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| ((i * 2_654_435_761) >> 7) as u8)
        .collect()
}

// The certificate's key is one of ECDSA.
fn suites() -> impl Iterator<Item = SupportedCipherSuite> {
    let all = aws_lc_rs::ALL_CIPHER_SUITES.iter().copied();
    all.filter(|suite| !format!("{:?}", suite.suite()).contains("RSA"))
}

fn failure(error: &io::Error) -> &Error {
    error.get_ref().unwrap().downcast_ref().unwrap()
}

#[tokio::test]
async fn rustls_understands_every_suite_in_both_roles_whatever_is_cut_where() {
    let sent = noise(200_000);
    for suite in suites() {
        let ends = ends(vec![suite]);
        for (width, cut) in [(1_501, 50_000), (1 << 20, 3_001), (40_000, 200_000)] {
            let (ours, theirs) = ends.with_their_server(width).await;
            let (came, _) = echoed(ours, theirs, &sent, cut).await;
            assert!(came == sent, "{suite:?}, as a client, {width}, {cut}");
            let (ours, theirs) = ends.with_their_client(width).await;
            let (came, _) = echoed(ours, theirs, &sent, cut).await;
            assert!(came == sent, "{suite:?}, as a server, {width}, {cut}");
        }
    }
    assert!(suites().count() >= 6, "two versions, three ciphers");
}

#[tokio::test]
async fn what_comes_with_the_end_of_the_handshake_is_not_lost() {
    let ends = default_ends();
    let (near, far) = duplex(1 << 20);
    let connector = TlsConnector::from(Arc::clone(&ends.client));
    let server = accept(near, Arc::clone(&ends.server));
    let client = async {
        let mut client = connector.connect(name(), far).await.unwrap();
        // In the same poll as the handshake's last word.
        client.write_all(b"hello").await.unwrap();
        client
    };
    let (server, _client) = tokio::join!(server, client);
    let mut server = server.unwrap();
    assert_eq!(server.early, b"hello");
    assert_eq!(
        receive(&mut server).await.unwrap(),
        (b"hello".to_vec(), true)
    );
}

#[tokio::test]
async fn a_peer_that_asks_for_new_keys_gets_them() {
    let sent = noise(50_000);
    let (mut ours, mut theirs) = default_ends().with_their_server(1 << 20).await;
    for round in 0..3 {
        let TlsStream::Server(their_side) = &mut theirs else {
            panic!("they are the server");
        };
        their_side.get_mut().1.refresh_traffic_keys().unwrap();
        theirs.write_all(b"new").await.unwrap();
        theirs.flush().await.unwrap();
        assert_eq!(receive(&mut ours).await.unwrap().0, b"new");
        let mut came = vec![0; sent.len()];
        let mut pieces = Pieces::default();
        pieces.push(Bytes::copy_from_slice(&sent));
        poll_fn(|cx| ours.poll_output(&mut pieces, cx))
            .await
            .unwrap();
        theirs.read_exact(&mut came).await.unwrap();
        assert!(came == sent, "round {round}");
        // Four records since the new key, not since the beginning.
        assert_eq!(ours.session.sealed, 4, "round {round}");
    }
}

// A suite whose keys may seal a handful of records only.
fn soon_used_up() -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(suite) = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256
    else {
        panic!("it is one of TLS 1.3");
    };
    let suite = rustls::Tls13CipherSuite {
        common: rustls::crypto::CipherSuiteCommon {
            confidentiality_limit: 6,
            ..suite.common
        },
        ..*suite
    };
    SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
}

#[tokio::test]
async fn keys_are_renewed_before_they_have_sealed_too_much() {
    let sent = noise(1_000_000);
    let (ours, theirs) = ends(vec![soon_used_up()]).with_their_server(1 << 20).await;
    let (came, session) = echoed(ours, theirs, &sent, 200_000).await;
    assert!(session.sealed < 6 && session.opened < 6);
    assert!(came == sent);
}

#[tokio::test]
async fn tickets_are_for_others() {
    // rustls' server sends two after the handshake; they are longer than the answer.
    let (mut ours, mut theirs) = default_ends().with_their_server(1 << 20).await;
    theirs.write_all(b"hello").await.unwrap();
    theirs.flush().await.unwrap();
    let mut came = Vec::new();
    while came.is_empty() {
        came = receive(&mut ours).await.unwrap().0;
    }
    assert_eq!(came, b"hello");
}

#[tokio::test]
async fn the_end_is_told_from_a_cut() {
    let (mut ours, mut theirs) = default_ends().with_their_client(1 << 20).await;
    theirs.write_all(b"last").await.unwrap();
    theirs.shutdown().await.unwrap();
    assert_eq!(receive(&mut ours).await.unwrap(), (b"last".to_vec(), false));
    let (mut ours, theirs) = default_ends().with_their_client(1 << 20).await;
    drop(theirs);
    let cut = failed(&mut ours).await;
    assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
}

/// What a hostile peer does with its keys.
type Trick = fn(&mut Session) -> Vec<u8>;

fn sealed(session: &mut Session, kind: ContentType, payload: &[u8]) -> Vec<u8> {
    session.seal(kind, OutboundChunks::Single(payload)).unwrap()
}

#[tokio::test]
async fn a_peer_that_breaks_the_rules_is_told_which_and_cut_off() {
    use AlertDescription::{BadRecordMac, RecordOverflow, UnexpectedMessage};
    let tricks: [(&str, AlertDescription, Trick); 11] = [
        ("forged", BadRecordMac, |peer| {
            let mut record = sealed(peer, ContentType::ApplicationData, b"hello");
            *record.last_mut().unwrap() ^= 1;
            record
        }),
        ("sent again", BadRecordMac, |peer| {
            let record = sealed(peer, ContentType::ApplicationData, b"hello");
            record.repeat(2)
        }),
        ("too long", RecordOverflow, |_| vec![23, 3, 3, 0x48, 1]),
        ("not sealed", UnexpectedMessage, |_| {
            vec![21, 3, 3, 0, 2, WARNING, 0]
        }),
        ("of the handshake", UnexpectedMessage, |_| {
            vec![20, 3, 3, 0, 1, 1]
        }),
        ("a second handshake", UnexpectedMessage, |peer| {
            sealed(peer, ContentType::Handshake, &[1, 0, 0, 0])
        }),
        ("a message without end", UnexpectedMessage, |peer| {
            sealed(
                peer,
                ContentType::Handshake,
                &[NEW_SESSION_TICKET, 0xff, 0xff, 0xff],
            )
        }),
        ("data within a message", UnexpectedMessage, |peer| {
            let mut bytes = sealed(peer, ContentType::Handshake, &[NEW_SESSION_TICKET, 0, 0]);
            bytes.extend(sealed(peer, ContentType::ApplicationData, b"hello"));
            bytes
        }),
        (
            "something with old keys behind new ones",
            UnexpectedMessage,
            |peer| {
                let message = [KEY_UPDATE, 0, 0, 1, 0];
                sealed(peer, ContentType::Handshake, &message.repeat(2))
            },
        ),
        ("new keys in other words", UnexpectedMessage, |peer| {
            sealed(peer, ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, 2])
        }),
        ("half an alert", UnexpectedMessage, |peer| {
            sealed(peer, ContentType::Alert, &[FATAL])
        }),
    ];
    let ends = default_ends();
    for (what, alert, trick) in tricks {
        let (mut hostile, mut ours) = ends.both_ours().await;
        let bytes = trick(&mut hostile.session);
        hostile.io.write_all(&bytes).await.unwrap();
        failed(&mut ours).await;
        let told = failed(&mut hostile).await;
        assert_eq!(failure(&told), &Error::AlertReceived(alert), "{what}");
    }
}

#[tokio::test]
async fn an_alert_ends_the_connection_and_is_not_answered() {
    let (mut hostile, mut ours) = default_ends().both_ours().await;
    let bytes = sealed(&mut hostile.session, ContentType::Alert, &[FATAL, 80]);
    hostile.io.write_all(&bytes).await.unwrap();
    let told = failed(&mut ours).await;
    let alert = Error::AlertReceived(AlertDescription::InternalError);
    assert_eq!(failure(&told), &alert);
    drop(ours);
    let silence = failed(&mut hostile).await;
    assert_eq!(silence.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_handshake_that_fails_is_explained_to_the_peer() {
    let (trusting, other) = (default_ends(), default_ends());
    let (near, far) = duplex(1 << 20);
    let connector = TlsConnector::from(Arc::clone(&trusting.client));
    let ours = accept(near, Arc::clone(&other.server));
    let (ours, theirs) = tokio::join!(ours, connector.connect(name(), far));
    assert!(theirs.is_err());
    let told = ours.err().unwrap();
    assert!(matches!(failure(&told), Error::AlertReceived(_)), "{told}");

    let (near, far) = duplex(1 << 20);
    let acceptor = TlsAcceptor::from(Arc::clone(&other.server));
    let ours = connect(near, Arc::clone(&trusting.client), name());
    let (ours, theirs) = tokio::join!(ours, acceptor.accept(far));
    let why = ours.err().unwrap();
    assert!(
        matches!(failure(&why), Error::InvalidCertificate(_)),
        "{why}"
    );
    let told = theirs.err().unwrap();
    assert!(matches!(failure(&told), Error::AlertReceived(_)), "{told}");
}

#[tokio::test]
async fn a_hello_without_end_is_refused_while_it_is_short() {
    let (near, mut far) = duplex(1 << 20);
    let talk = async {
        // Records of a message of 16 MiB less one.
        let mut record = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
        record.resize(5 + (1 << 14), 0);
        while far.write_all(&record).await.is_ok() {}
    };
    let (refused, ()) = tokio::join!(
        async { accept(near, default_ends().server).await.err() },
        talk
    );
    assert!(refused.is_some());
}
