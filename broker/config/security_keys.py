"""The keys of Kafka 3.9 that are about TLS, SASL, authorization and tokens."""

from dataclasses import replace

from logyard.broker.config.key_types import ConfigType, Key, at_least, between, one_of

BOOLEAN, STRING, INT, SHORT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.SHORT
LONG, DOUBLE, LIST, CLASS, PASSWORD = (
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.CLASS,
    ConfigType.PASSWORD,
)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# What may change while a listener runs, each for one listener: Kafka's SslConfigs.RECONFIGURABLE_CONFIGS.
RENEWABLE = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)

SECURITY_KEYS = (
    Key("security.inter.broker.protocol", STRING, "PLAINTEXT", one_of(*PROTOCOLS)),
    Key("security.providers", STRING),
    Key(
        "principal.builder.class", CLASS, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    ),
    Key("connections.max.reauth.ms", LONG, 0),
    Key("authorizer.class.name", STRING, ""),
    # The two that Kafka's own ACL authorizers read.
    Key("super.users", STRING, ""),
    Key("allow.everyone.if.no.acl.found", BOOLEAN, False),
    Key("authorizer.zookeeper.url", STRING),
    Key("authorizer.zookeeper.connection.timeout.ms", INT),
    Key("authorizer.zookeeper.session.timeout.ms", INT),
    Key("authorizer.zookeeper.max.in.flight.requests", INT),
    Key("logyard.audit.allowed", BOOLEAN, False),
    Key("ssl.protocol", STRING, "TLSv1.3"),
    Key("ssl.provider", STRING),
    Key("ssl.cipher.suites", LIST, ()),
    Key("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3")),
    Key("ssl.keystore.type", STRING, "JKS"),
    Key("ssl.keystore.location", STRING),
    Key("ssl.keystore.password", PASSWORD),
    Key("ssl.keystore.key", PASSWORD),
    Key("ssl.keystore.certificate.chain", PASSWORD),
    Key("ssl.key.password", PASSWORD),
    Key("ssl.truststore.type", STRING, "JKS"),
    Key("ssl.truststore.location", STRING),
    Key("ssl.truststore.password", PASSWORD),
    Key("ssl.truststore.certificates", PASSWORD),
    Key("ssl.keymanager.algorithm", STRING, "SunX509"),
    Key("ssl.trustmanager.algorithm", STRING, "PKIX"),
    Key("ssl.endpoint.identification.algorithm", STRING, "https"),
    Key("ssl.secure.random.implementation", STRING),
    Key("ssl.client.auth", STRING, "none", one_of("required", "requested", "none")),
    Key("ssl.principal.mapping.rules", STRING, "DEFAULT"),
    Key("ssl.engine.factory.class", CLASS),
    Key("ssl.allow.dn.changes", BOOLEAN, False),
    Key("ssl.allow.san.changes", BOOLEAN, False),
    Key("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI"),
    Key("sasl.mechanism.controller.protocol", STRING, "GSSAPI"),
    Key("sasl.enabled.mechanisms", LIST, ("GSSAPI",)),
    Key("sasl.jaas.config", PASSWORD),
    Key("sasl.server.callback.handler.class", CLASS),
    Key("sasl.server.max.receive.size", INT, 524_288),
    Key("sasl.client.callback.handler.class", CLASS),
    Key("sasl.login.class", CLASS),
    Key("sasl.login.callback.handler.class", CLASS),
    Key("sasl.login.connect.timeout.ms", INT),
    Key("sasl.login.read.timeout.ms", INT),
    Key("sasl.login.retry.backoff.ms", LONG, 100),
    Key("sasl.login.retry.backoff.max.ms", LONG, 10_000),
    Key("sasl.login.refresh.window.factor", DOUBLE, 0.8, between(0.5, 1)),
    Key("sasl.login.refresh.window.jitter", DOUBLE, 0.05, between(0, 0.25)),
    Key("sasl.login.refresh.min.period.seconds", SHORT, 60, between(0, 900)),
    Key("sasl.login.refresh.buffer.seconds", SHORT, 300, between(0, 3600)),
    Key("sasl.kerberos.service.name", STRING),
    Key("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit"),
    Key("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8),
    Key("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05),
    Key("sasl.kerberos.min.time.before.relogin", LONG, 60_000),
    Key("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",)),
    Key("sasl.oauthbearer.token.endpoint.url", STRING),
    Key("sasl.oauthbearer.scope.claim.name", STRING, "scope"),
    Key("sasl.oauthbearer.sub.claim.name", STRING, "sub"),
    Key("sasl.oauthbearer.jwks.endpoint.url", STRING),
    Key("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000),
    Key("sasl.oauthbearer.clock.skew.seconds", INT, 30),
    Key("sasl.oauthbearer.expected.audience", LIST, ()),
    Key("sasl.oauthbearer.expected.issuer", STRING),
    Key("sasl.oauthbearer.header.urlencode", BOOLEAN, False),
    Key("delegation.token.master.key", PASSWORD),
    Key("delegation.token.secret.key", PASSWORD),
    Key("delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1)),
    Key("delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1)),
    Key("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1)),
    Key("password.encoder.secret", PASSWORD),
    Key("password.encoder.old.secret", PASSWORD),
    Key("password.encoder.keyfactory.algorithm", STRING),
    Key("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding"),
    Key("password.encoder.key.length", INT, 128, at_least(8)),
    Key("password.encoder.iterations", INT, 4096, at_least(1024)),
    Key("zookeeper.ssl.client.enable", BOOLEAN, False),
    Key("zookeeper.clientCnxnSocket", STRING),
    Key("zookeeper.ssl.keystore.location", STRING),
    Key("zookeeper.ssl.keystore.password", PASSWORD),
    Key("zookeeper.ssl.keystore.type", STRING),
    Key("zookeeper.ssl.truststore.location", STRING),
    Key("zookeeper.ssl.truststore.password", PASSWORD),
    Key("zookeeper.ssl.truststore.type", STRING),
    Key("zookeeper.ssl.protocol", STRING, "TLSv1.2"),
    Key("zookeeper.ssl.enabled.protocols", LIST),
    Key("zookeeper.ssl.cipher.suites", LIST),
    Key("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS"),
    Key("zookeeper.ssl.crl.enable", BOOLEAN, False),
    Key("zookeeper.ssl.ocsp.enable", BOOLEAN, False),
)

# How the authorizer connects to ZooKeeper; what is not given is as for the broker's own connection (AclAuthorizer).
AUTHORIZER_TLS_KEYS = tuple(
    replace(key, name=f"authorizer.{key.name}", default=None)
    for key in SECURITY_KEYS
    if key.name.startswith("zookeeper.ssl.") or key.name == "zookeeper.clientCnxnSocket"
)
