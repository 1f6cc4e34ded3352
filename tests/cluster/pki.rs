//! The cluster's own certificates and keys.
//!
//! Made with `rcgen`, not with the openssl program: one more crate for the tests, but no tool whose
//! version and configuration differ between machines. The API server's self-made certificate would be
//! its own CA, which rustls refuses.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Paths of PEM files.
#[derive(Debug)]
pub struct Pki {
    pub ca: PathBuf,
    pub server_certificate: PathBuf,
    pub server_key: PathBuf,
    /// Signs service-account tokens (EC P-256).
    pub service_account_key: PathBuf,
    pub service_account_public_key: PathBuf,
}

/// Every name a client may reach the API server by: from this machine, and from a pod.
const SERVER_NAMES: [&str; 8] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "10.0.0.1",
    "fd00::1",
];

impl Pki {
    pub fn create(folder: &Path) -> Result<Pki, rcgen::Error> {
        let pki = Pki {
            ca: folder.join("ca.crt"),
            server_certificate: folder.join("apiserver.crt"),
            server_key: folder.join("apiserver.key"),
            service_account_key: folder.join("sa.key"),
            service_account_public_key: folder.join("sa.pub"),
        };
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "tenure test cluster");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        write(&pki.ca, &ca.self_signed(&ca_key)?.pem());

        let server_key = KeyPair::generate()?;
        let mut server = CertificateParams::new(SERVER_NAMES.map(String::from))?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = server.signed_by(&server_key, &Issuer::new(ca, ca_key))?;
        write(&pki.server_certificate, &certificate.pem());
        write(&pki.server_key, &server_key.serialize_pem());

        let account_key = KeyPair::generate()?;
        write(&pki.service_account_key, &account_key.serialize_pem());
        write(&pki.service_account_public_key, &account_key.public_key_pem());
        Ok(pki)
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
}
