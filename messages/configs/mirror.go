package configs

import (
	"slices"

	"kagami/messages"
)

// Keys of mirrors that other parts of this module name.
const (
	BootstrapServers             = "bootstrap.servers"
	MirrorTopicsInclude          = messages.MirrorTopicsIncludeConfig
	MirrorTopicsExclude          = messages.MirrorTopicsExcludeConfig
	MirrorGroupsInclude          = "mirror.groups.include"
	MirrorGroupsExclude          = "mirror.groups.exclude"
	MirrorACLInclude             = "mirror.acl.include"
	MirrorTopicPropertiesExclude = "mirror.topic.properties.exclude"

	// MirrorSourceClusterID is the id of the first source cluster that answered
	// (OP-36). The controller removes it when a connection setting changes.
	MirrorSourceClusterID = "mirror.source.cluster.id"
)

// neverCopied are topic configs that no mirror copies, whatever its exclude
// list says (configs.md, Selection and filters).
var neverCopied = []string{
	MirrorName, MirrorThrottledReplicas, MirrorSupportUncleanElection, MirrorCopiedConfigs,
	MessageTimestampBefore, MessageTimestampAfter,
}

// NeverCopied reports whether a topic config must not be copied from a source,
// even if mirror.topic.properties.exclude doesn't name it.
func NeverCopied(topicConfig string) bool {
	return slices.Contains(neverCopied[:4], topicConfig)
}

// CopyExcluded reports whether a mirror with these configs leaves a topic config
// of its source alone. The two message.timestamp keys follow their log. twins,
// which the default list prints with a prefix that topic configs don't have.
func CopyExcluded(mirror map[string]string, topicConfig string) bool {
	if NeverCopied(topicConfig) {
		return true
	}
	list := MirrorValues(mirror).List(MirrorTopicPropertiesExclude)
	if slices.Contains(list, topicConfig) {
		return true
	}
	return slices.Contains(neverCopied, topicConfig) && slices.Contains(list, "log."+topicConfig)
}

// ReconnectNeeded reports whether a change of a mirror config touches the
// connection: all but the five filter keys (OP-8) and the remembered cluster id.
func ReconnectNeeded(key string) bool {
	switch key {
	case MirrorTopicsInclude, MirrorTopicsExclude, MirrorGroupsInclude, MirrorGroupsExclude, MirrorACLInclude, MirrorSourceClusterID:
		return false
	}
	return true
}

// ConnectionSetting reports whether a mirror config says where the source is or
// how to log in there. A change of one clears mirror.source.cluster.id (OP-36).
func ConnectionSetting(key string) bool {
	return ReconnectNeeded(key) && key != MirrorTopicPropertiesExclude
}

var mirrorSet = newSet("cluster mirror", nil, mirrorConnectionDefs(), mirrorStoreDefs(), mirrorFilterDefs())

// Mirror is the set of cluster mirror configs.
func Mirror() *Set { return mirrorSet }

func mirrorConnectionDefs() []Def {
	const javaClass = "Java class name: stored; a connection is refused while it is set, because this server has no equivalent."
	return []Def{
		{Name: BootstrapServers, Type: TypeList, High: true, check: bootstrap(),
			Doc: "Brokers of the source to start from. Required."},
		{Name: "security.protocol", Type: TypeString, Default: new("PLAINTEXT"), High: true,
			check: oneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), Doc: "How to connect to the source."},
		{Name: "sasl.mechanism", Type: TypeString, Default: new("PLAIN"),
			check: oneOf("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"),
			Doc:   "SASL mechanism towards the source."},
		{Name: SASLJAAS, Type: TypePassword, Doc: "One JAAS login entry: username and password; of OAUTHBEARER clientId, clientSecret and, if need be, scope, extension_NAME and ssl.* for the token endpoint; of GSSAPI useKeyTab=true, keyTab and principal."},
		{Name: "sasl.oauthbearer.token.endpoint.url", Type: TypeString, Doc: "OAUTHBEARER: where tokens are got by the client's credentials, https:// or http://. A token is used again until four fifths of its life are over."},
		{Name: "sasl.kerberos.service.name", Type: TypeString, Doc: "GSSAPI: the first part of the principals of the source's brokers. KDCs are read from the node's /etc/krb5.conf, or the file that its environment names in KRB5_CONFIG."},
		{Name: "sasl.client.callback.handler.class", Type: TypeClass, Doc: javaClass},
		{Name: "sasl.login.callback.handler.class", Type: TypeClass, Doc: javaClass + " Kafka's OAuthBearerLoginCallbackHandler is taken with OAUTHBEARER."},
		{Name: "sasl.login.class", Type: TypeClass, Doc: javaClass},
	}
}

func mirrorStoreDefs() []Def {
	const javaOnly = "Java only: stored, without effect."
	storeType := oneOf("JKS", "PKCS12", "PEM")
	return []Def{
		{Name: SSLProtocol, Type: TypeString, Default: new("TLSv1.3"), check: oneOf("TLSv1.2", "TLSv1.3", "TLS"),
			Doc: "Newest TLS version to use."},
		{Name: SSLProtocols, Type: TypeList, Default: new("TLSv1.2,TLSv1.3"), check: someOf("TLSv1.2", "TLSv1.3").notEmpty(),
			Doc: "TLS versions to use."},
		{Name: SSLCiphers, Type: TypeList, Doc: "Cipher suites by their IANA names; a version of TLS that none of them belongs to isn't spoken. Of TLS 1.3 all three have to be named, or none. Not set: the safe ones."},
		{Name: "ssl.endpoint.identification.algorithm", Type: TypeString, Default: new("https"), check: oneOf("https", ""),
			Doc: "https: the broker's certificate must name its host; empty: no such check."},
		{Name: SSLTruststoreType, Type: TypeString, Default: new("JKS"), check: storeType,
			Doc: "Type of the trust store: JKS, PKCS12 or PEM. Of the first two the file decides."},
		{Name: SSLTruststoreLocation, Type: TypeString, Doc: "File with the certificates to trust, on every node. Read with every new connection."},
		{Name: SSLTruststorePassword, Type: TypePassword, Doc: "Password of the trust store. A PEM one has none."},
		{Name: SSLTruststoreCerts, Type: TypePassword, Doc: "Certificates to trust, as PEM text, with type PEM."},
		{Name: SSLKeystoreType, Type: TypeString, Default: new("JKS"), check: storeType,
			Doc: "Type of the key store: JKS, PKCS12 or PEM. Of the first two the file decides."},
		{Name: SSLKeystoreLocation, Type: TypeString, Doc: "File with private key and certificate chain, on every node. Read with every new connection."},
		{Name: SSLKeystorePassword, Type: TypePassword, Doc: "Password of the key store. A PEM one has none of its own."},
		{Name: SSLKeyPassword, Type: TypePassword, Doc: "Password of the private key in a JKS, if it is another than the store's, or of an encrypted PEM key (PKCS #8, PBES2)."},
		{Name: SSLKeystoreKey, Type: TypePassword, Doc: "Private key, as PEM text, with type PEM."},
		{Name: SSLKeystoreChain, Type: TypePassword, Doc: "Certificate chain, as PEM text, with type PEM."},
		{Name: "ssl.provider", Type: TypeString, Doc: javaOnly},
		{Name: "ssl.keymanager.algorithm", Type: TypeString, Doc: javaOnly},
		{Name: "ssl.trustmanager.algorithm", Type: TypeString, Doc: javaOnly},
		{Name: "ssl.secure.random.implementation", Type: TypeString, Doc: javaOnly},
		{Name: "ssl.engine.factory.class", Type: TypeClass, Doc: javaOnly},
		{Name: "security.providers", Type: TypeString, Doc: javaOnly},
	}
}

func mirrorFilterDefs() []Def {
	return []Def{
		{Name: MirrorTopicsInclude, Type: TypeList, Default: new(""), High: true, check: regexList(),
			Doc: "Topics to discover on the source. Each pattern must match the whole name."},
		{Name: MirrorTopicsExclude, Type: TypeList, Default: new(messages.MirrorTopicsExcludeDefault), High: true, check: regexList(),
			Doc: "Topics never mirrored; active topics that match are stopped. Wins over include."},
		{Name: MirrorGroupsInclude, Type: TypeList, Default: new(".*"), check: regexList(),
			Doc: "Groups, consumer and share, whose offsets are copied."},
		{Name: MirrorGroupsExclude, Type: TypeList, Default: new(""), check: regexList(),
			Doc: "Groups whose offsets are not copied. Wins over include."},
		{Name: MirrorACLInclude, Type: TypeList, Default: new("*"), check: aclRules(),
			Doc: "ACLs to copy: resourceType;resourceName;operation;permissionType;principal, trailing * left out. Empty: none."},
		{Name: MirrorTopicPropertiesExclude, Type: TypeList,
			Default: new("follower.replication.throttled.replicas,leader.replication.throttled.replicas,message.timestamp.difference.max.ms," +
				"log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,message.timestamp.type," +
				"unclean.leader.election.enable,min.insync.replicas,mirror.name"),
			Doc: "Topic configs that are not copied from the source. mirror.name, mirror.replication.throttled.replicas and mirror.support.unclean.leader.election never are."},
		{Name: MirrorSourceClusterID, Type: TypeString, Change: ChangeNever,
			Doc: "Id of the source cluster, remembered from its first answer. Cleared when the connection settings change."},
	}
}
