"""Writes the files that the lines of az.tbl name."""

import datetime
import json
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEjvPPXlsZNkX5CbBBWyNzPYhvMqSvvZ3aWfCmYwbhhM test"
SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
TABLE = "Microsoft.Network/routeTables"


def template(**more):
    return {"$schema": SCHEMA, "contentVersion": "1.0.0.0", "resources": [], **more}


GROUP = template(
    parameters={"name": {"type": "string"}},
    resources=[{"type": TABLE, "apiVersion": "2024-01-01", "name": "[parameters('name')]",
                "location": "[resourceGroup().location]", "properties": {}}],
    outputs={"kind": {"type": "string", "value":
             f"[reference(resourceId('{TABLE}', parameters('name')), '2024-01-01', 'Full').type]"}},
)
SUBSCRIPTION = template(
    resources=[{"type": "Microsoft.Resources/resourceGroups", "apiVersion": "2024-11-01", "name": "g2",
                "location": "eastus", "properties": {}}],
)
SUBSCRIPTION["$schema"] = SCHEMA.replace("deploymentTemplate", "subscriptionDeploymentTemplate")
RECURSION = template(
    variables={"a": "[variables('b')]", "b": "[variables('a')]"},
    outputs={"o": {"type": "string", "value": "[variables('a')]"}},
)
POLICY = {
    "issuerParameters": {"name": "Self"}, "secretProperties": {"contentType": "application/x-pkcs12"},
    "keyProperties": {"exportable": True, "keyType": "RSA", "keySize": 2048, "reuseKey": False},
    "x509CertificateProperties": {"subject": "CN=a.example", "validityInMonths": 12, "keyUsage": ["digitalSignature"]},
}
QUERY = {"query": "Resources | where type =~ 'microsoft.network/virtualnetworks' | project name, location | limit 5"}


def certificate():
    """A key and a certificate that it signed itself, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "imported.example")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now,
                                   now + datetime.timedelta(days=30)).sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(pem)


def main():
    place = pathlib.Path(sys.argv[1])
    (place / "key.pub").write_text(KEY + "\n")
    (place / "bundle.pem").write_bytes(certificate())
    files = {"template": GROUP, "subscription": SUBSCRIPTION, "recursion": RECURSION, "policy": POLICY, "query": QUERY}
    for name, content in files.items():
        (place / f"{name}.json").write_text(json.dumps(content))


main()
