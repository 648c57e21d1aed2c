//! Requests of every shape, also those that well-behaved programs do not make.

use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

use der::pem;

const ECDSA_SHA256: [u64; 7] = [1, 2, 840, 10045, 4, 3, 2];
const EXTENSION_REQUEST: [u64; 7] = [1, 2, 840, 113_549, 1, 9, 14];
const SUBJECT_ALT_NAME: [u64; 4] = [2, 5, 29, 17];

/// A request to be made: names, and lists of alternative names as they stand in the file.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    names: Vec<(u64, String)>,
    lists: [Vec<Vec<u8>>; 2],
}

impl Wish {
    pub(crate) fn of(common_name: &str) -> Wish {
        Wish {
            names: vec![(3, common_name.into())],
            lists: [Vec::new(), Vec::new()],
        }
    }

    pub(crate) fn and_common_name(mut self, name: &str) -> Wish {
        self.names.push((3, name.into()));
        self
    }

    pub(crate) fn organisations(mut self, all: &[&str]) -> Wish {
        self.names.extend(all.iter().map(|o| (10, (*o).to_owned())));
        self
    }

    pub(crate) fn dns(self, name: &str) -> Wish {
        self.alternative(0, 0x82, name.as_bytes())
    }

    pub(crate) fn dns_in_second_list(self, name: &str) -> Wish {
        self.alternative(1, 0x82, name.as_bytes())
    }

    pub(crate) fn email(self, name: &str) -> Wish {
        self.alternative(0, 0x81, name.as_bytes())
    }

    pub(crate) fn uri(self, name: &str) -> Wish {
        self.alternative(0, 0x86, name.as_bytes())
    }

    pub(crate) fn ip(self, address: &str) -> Wish {
        let v4: std::net::Ipv4Addr = address.parse().expect("an IPv4 address");
        self.alternative(0, 0x87, &v4.octets())
    }

    pub(crate) fn raw_ip(self, bytes: &[u8]) -> Wish {
        self.alternative(0, 0x87, bytes)
    }

    fn alternative(mut self, list: usize, tag: u8, content: &[u8]) -> Wish {
        self.lists[list].push(der::value(tag, content));
        self
    }

    /// The request, signed with a new key.
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE REQUEST", &self.der())
    }

    fn der(&self) -> Vec<u8> {
        let key = KeyPair::generate().expect("a key can be made");
        let info = der::sequence(&[
            der::unsigned(&[0]),
            self.subject(),
            key.subject_public_key_info(),
            der::explicit(0, &self.extensions()),
        ]);
        let signature = key.sign(&info).expect("the key signs");
        der::sequence(&[
            info,
            der::sequence(&[der::oid(&ECDSA_SHA256)]),
            der::bit_string(&signature),
        ])
    }

    fn subject(&self) -> Vec<u8> {
        let attribute = |(arc, text): &(u64, String)| {
            let pair = der::sequence(&[der::oid(&[2, 5, 4, *arc]), der::text(text)]);
            der::set(vec![pair])
        };
        der::sequence(&self.names.iter().map(attribute).collect::<Vec<_>>())
    }

    fn extensions(&self) -> Vec<u8> {
        let lists = self.lists.iter().filter(|list| !list.is_empty());
        let extensions: Vec<Vec<u8>> = lists
            .map(|list| {
                let names = der::octets(&der::sequence(list));
                der::sequence(&[der::oid(&SUBJECT_ALT_NAME), names])
            })
            .collect();
        if extensions.is_empty() {
            return Vec::new();
        }
        let values = der::set(vec![der::sequence(&extensions)]);
        der::sequence(&[der::oid(&EXTENSION_REQUEST), values])
    }
}

/// The request with one letter of its subject changed after it was signed.
pub(crate) fn tampered(wish: &Wish) -> String {
    let mut bytes = wish.der();
    let name = wish.names[0].1.as_bytes();
    let place = bytes
        .windows(name.len())
        .position(|window| window == name)
        .expect("the name is in there");
    bytes[place] ^= 1;
    pem("CERTIFICATE REQUEST", &bytes)
}
