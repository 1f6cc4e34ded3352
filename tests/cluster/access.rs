//! Namespaces, service accounts, roles, tokens: what a candidate is given, and Leases as a test wants them.

use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::core::v1::{Container, Namespace as NamespaceObject, Pod, PodSpec};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};

use super::{Cluster, random_hex};

/// The verbs that the shipped Role grants on the one Lease.
pub const CANDIDATE_VERBS: [&str; 5] = ["get", "list", "watch", "create", "update"];

/// A namespace of one test.
#[derive(Debug, Clone)]
pub struct Namespace<'a> {
    pub cluster: &'a Cluster,
    pub name: String,
}

/// A service account with a token, and the files a pod would find mounted.
#[derive(Debug, Clone)]
pub struct Access {
    /// The API server's, or that of a proxy before it once a test has put one here.
    pub url: String,
    /// Holds `token`, `ca.crt` and `namespace`, as /var/run/secrets/kubernetes.io/serviceaccount does.
    pub folder: PathBuf,
    pub token: String,
    /// The user's name in the audit log.
    pub user: String,
}

impl Access {
    pub fn token_file(&self) -> PathBuf {
        self.folder.join("token")
    }

    pub fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// A client as the account. Belongs to the runtime that calls this.
    pub fn client(&self) -> kube::Client {
        super::client::new(&self.url, &self.ca_file(), &self.token)
    }

    /// Replaces the token as the kubelet does: by a rename, never by a half-written file.
    pub fn write_token(&self, token: &str) {
        let partial = self.folder.join(".token");
        fs::write(&partial, token).expect("write a token");
        fs::rename(&partial, self.token_file()).expect("rename a token");
    }
}

impl Cluster {
    /// A new namespace; its name is `<hint>-<random>`.
    pub async fn namespace(&self, hint: &str) -> Namespace<'_> {
        let name = format!("{hint}-{}", &random_hex()[..8]);
        let object = NamespaceObject { metadata: named(&name), ..Default::default() };
        let api: Api<NamespaceObject> = Api::all(self.admin());
        api.create(&PostParams::default(), &object).await.expect("create a namespace");
        Namespace { cluster: self, name }
    }
}

impl Namespace<'_> {
    /// What a pod of a Deployment gets: an account of its own that may do on this one Lease what the
    /// shipped Role allows, a token, and the files. The account is named `candidate`; call it again for
    /// more tokens of the same account.
    pub async fn access(&self, lease: &str) -> Access {
        self.service_account("candidate").await;
        self.allow("candidate", lease, &CANDIDATE_VERBS).await;
        self.access_of("candidate", None).await
    }

    /// As [`access`](Self::access) for an elector that creates the Lease by a POST, which no Role can
    /// limit by name: client-go. The Lease is made here in its place, empty and free.
    pub async fn access_for_client_go(&self, lease: &str) -> Access {
        self.create_lease(lease, LeaseSpec::default()).await;
        self.access(lease).await
    }

    /// A fresh token of an account, bound to a pod when one is given, with its files.
    pub async fn access_of(&self, account: &str, pod: Option<&Pod>) -> Access {
        let token = self.token(account, pod).await;
        let folder = self.cluster.folder.join(format!("access-{}-{}", self.name, random_hex()));
        fs::create_dir_all(&folder).expect("a folder for the token");
        fs::copy(self.cluster.ca_file(), folder.join("ca.crt")).expect("copy the CA");
        fs::write(folder.join("namespace"), &self.name).expect("write the namespace");
        let user = format!("system:serviceaccount:{}:{account}", self.name);
        let access = Access { url: self.cluster.url(), folder, token, user };
        access.write_token(&access.token);
        access
    }

    /// Makes an account; one that exists already is fine.
    pub async fn service_account(&self, account: &str) {
        let object = ServiceAccount { metadata: named(account), ..Default::default() };
        tolerate_existing(self.api().create(&PostParams::default(), &object).await);
    }

    /// Lets an account use `verbs` on the one Lease. The Role and its binding are named
    /// `<account>-<lease>`; a later call replaces the verbs, which is how a test revokes them. No verb: a
    /// Role that allows nothing.
    pub async fn allow(&self, account: &str, lease: &str, verbs: &[&str]) {
        let name = format!("{account}-{lease}");
        let rule = PolicyRule {
            api_groups: Some(vec!["coordination.k8s.io".into()]),
            resources: Some(vec!["leases".into()]),
            resource_names: Some(vec![lease.into()]),
            verbs: verbs.iter().map(|verb| String::from(*verb)).collect(),
            ..Default::default()
        };
        self.bind(account, &name, rule).await;
    }

    /// A Role of one rule, and its binding, both of this name.
    async fn bind(&self, account: &str, name: &str, rule: PolicyRule) {
        // A rule without a verb is no valid one.
        let rules = if rule.verbs.is_empty() { None } else { Some(vec![rule]) };
        let role = Role { metadata: named(name), rules };
        let roles: Api<Role> = self.api();
        // A PUT to an absent Role creates it.
        roles.replace(name, &PostParams::default(), &role).await.expect("write a Role");
        let binding = RoleBinding {
            metadata: named(name),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".into()),
                kind: "Role".into(),
                name: name.into(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".into(),
                name: account.into(),
                namespace: Some(self.name.clone()),
                ..Default::default()
            }]),
        };
        tolerate_existing(self.api().create(&PostParams::default(), &binding).await);
    }

    /// Lets an account write Events, as the shipped Role does where Events are wanted.
    pub async fn allow_events(&self, account: &str) {
        let name = format!("{account}-events");
        let rule = PolicyRule {
            api_groups: Some(vec!["events.k8s.io".into()]),
            resources: Some(vec!["events".into()]),
            verbs: vec!["create".into()],
            ..Default::default()
        };
        self.bind(account, &name, rule).await;
    }

    /// A token by the TokenRequest API. Bound to `pod`, it names that pod and its uid in its claims and
    /// is refused once the pod is deleted.
    pub async fn token(&self, account: &str, pod: Option<&Pod>) -> String {
        let bound = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        });
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { bound_object_ref: bound, ..Default::default() }),
            ..Default::default()
        };
        let api: Api<ServiceAccount> = self.api();
        let answer = api.create_token_request(account, &PostParams::default(), &request).await;
        let status = answer.expect("a token").status;
        status.and_then(|status| status.token).expect("a token in the answer")
    }

    /// A Pod object of an account. Nothing runs it; a token can be bound to it.
    pub async fn pod(&self, name: &str, account: &str) -> Pod {
        let container = Container {
            name: "app".into(),
            image: Some("none.invalid/app".into()),
            ..Default::default()
        };
        let pod = Pod {
            metadata: named(name),
            spec: Some(PodSpec {
                containers: vec![container],
                service_account_name: Some(account.into()),
                ..Default::default()
            }),
            ..Default::default()
        };
        self.api().create(&PostParams::default(), &pod).await.expect("create a pod")
    }

    /// The namespace's Leases, as admin.
    pub fn leases(&self) -> Api<Lease> {
        self.api()
    }

    /// A Lease with this spec. `LeaseSpec::default()` is an empty one, free at once.
    pub async fn create_lease(&self, name: &str, spec: LeaseSpec) -> Lease {
        let lease = Lease { metadata: named(name), spec: Some(spec) };
        self.leases().create(&PostParams::default(), &lease).await.expect("create a Lease")
    }

    pub async fn get_lease(&self, name: &str) -> Option<Lease> {
        self.leases().get_opt(name).await.expect("read a Lease")
    }

    pub async fn delete_lease(&self, name: &str) {
        self.leases().delete(name, &DeleteParams::default()).await.expect("delete a Lease");
    }

    /// Reads, changes and writes a Lease, again after each conflict, as a person with kubectl edit does.
    pub async fn edit_lease(&self, name: &str, edit: impl Fn(&mut Lease)) -> Lease {
        const TRIES: usize = 100;
        let leases = self.leases();
        for _ in 0..TRIES {
            let mut lease = leases.get(name).await.expect("read a Lease");
            edit(&mut lease);
            match leases.replace(name, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                written => return written.expect("write a Lease"),
            }
        }
        panic!("{TRIES} conflicts in a row on {name}");
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.admin(), &self.name)
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..Default::default() }
}

fn tolerate_existing<K>(created: kube::Result<K>) {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => {
            created.expect("create an object");
        }
    }
}
