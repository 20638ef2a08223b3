package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/magiconair/properties"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"kagami/broker"
	"kagami/cluster"
	"kagami/internal/clock"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
)

// Faults of the node's configuration.
var (
	errConfigFile  = errors.New("config file")
	errConfigValue = errors.New("config value")
)

// settings is a node's configuration, read once at start.
type settings struct {
	nodeID      messages.NodeID
	dataDir     string
	listeners   []broker.Listener   // without their security, which secureListeners adds
	advertised  []messages.Endpoint // host and port as clients are told; port 0 = the bound one
	adminAddr   string
	adminUser   string        // that the admin server asks for; "": nobody
	adminSecure adminSecurity // as far as the settings tell it
	level       zapcore.Level
	logJSON     bool
	pprof       bool
	rack        string
	unknown     []string // keys of the file that nobody here knows

	cluster            *cluster.Options // nil: a cluster of one
	clusterID          string           // that the configuration demands
	natsReplicas       int              // of the journal's streams on an external NATS cluster
	checkpointInterval time.Duration

	retentionInterval time.Duration
	snapshotBytes     int64         // of the metadata log between two snapshots
	flushInterval     time.Duration // of data that isn't synced in its append

	secrets *secrets.Ring // nil: secrets of the metadata are written in clear

	// static is everything as text, by Kafka's names, for DescribeConfigs and for
	// the parts that read keys of their own.
	static map[string]string
}

// loadSettings reads the file (none if empty) and the overrides, key=value each.
func loadSettings(file string, overrides []string) (settings, error) {
	values := map[string]string{}
	if file != "" {
		p, err := (&properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}).LoadFile(file)
		if err != nil {
			return settings{}, fmt.Errorf("%w: read %s: %w", errConfigFile, file, err)
		}
		maps.Copy(values, p.Map())
	}
	for _, o := range overrides {
		k, v, ok := strings.Cut(o, "=")
		if !ok {
			return settings{}, fmt.Errorf("%w: --set %q is not key=value", errConfigValue, o)
		}
		values[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return parseSettings(values)
}

func parseSettings(static map[string]string) (settings, error) {
	var errs []error
	unknown, err := configs.ValidateFile(static)
	if err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errConfigValue, err))
	}
	v := configs.BrokerValues(nil, static)
	s := settings{
		static: static, unknown: unknown,
		nodeID:            messages.NodeID(v.Int64(configs.NodeIDConfig)),
		rack:              v.String("broker.rack"),
		adminAddr:         v.String(configs.AdminListen),
		adminUser:         v.String(configs.AdminUser),
		logJSON:           v.String("kagami.log.format") == "json",
		pprof:             v.Bool("kagami.pprof.enable"),
		flushInterval:     max(time.Millisecond, time.Duration(v.Int64("log.flush.interval.ms"))*time.Millisecond),
		snapshotBytes:     v.Int64(configs.MetadataSnapshotBytes),
		retentionInterval: time.Duration(v.Int64("log.retention.check.interval.ms")) * time.Millisecond,
	}
	refused := fmt.Sprint(err)
	fault := func(key, why string) {
		if strings.Contains(refused, ": "+key+": ") {
			return // it has been said
		}
		errs = append(errs, fmt.Errorf("%w: %s=%s: %s", errConfigValue, key, v.String(key), why))
	}
	dirs := v.String("log.dirs")
	if dirs == "" || strings.Contains(dirs, ",") {
		fault("log.dirs", "want exactly one folder")
	} else if s.dataDir, err = filepath.Abs(dirs); err != nil {
		fault("log.dirs", err.Error())
	}
	if err := checkHostPort(s.adminAddr); err != nil {
		fault(configs.AdminListen, err.Error())
	}
	if err := s.level.UnmarshalText([]byte(v.String("kagami.log.level"))); err != nil {
		fault("kagami.log.level", "want debug, info, warn or error")
	}
	s.parseListeners(v, fault)
	// Looked at here so that all faults are told together; the node does it again with
	// what it has then.
	if _, err := (secured{static: static, now: clock.Wall{}.Now, log: zap.NewNop()}).secure(s.listeners); err != nil {
		errs = append(errs, err)
	}
	if s.adminSecure, err = adminTLS(static, zap.NewNop()); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errConfigValue, err))
	}
	s.checkAdminAddress(v, fault)
	if (s.adminUser == "") != (v.String(configs.AdminPassword) == "") {
		fault(configs.AdminUser, "goes with "+configs.AdminPassword+": set both or none")
	}
	if text := v.String(configs.BootstrapScram); text != "" {
		if _, err := parseScramUser(text); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", errConfigValue, configs.BootstrapScram, err))
		}
	}
	if s.secrets, err = loadSecrets(v.String(configs.SecretsKeyFile), os.LookupEnv); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errConfigValue, err))
	}
	if err := s.parseCluster(v, fault); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errConfigValue, err))
	}
	return s, errors.Join(errs...)
}

// parseCluster reads what a node of several needs.
func (s *settings) parseCluster(v configs.Values, fault func(key, why string)) error {
	s.clusterID = v.String(configs.ClusterID)
	s.checkpointInterval = time.Duration(v.Int64(configs.JournalCheckpointMs)) * time.Millisecond
	peers, external := messages.ParseList(v.String(configs.ClusterPeers)), messages.ParseList(v.String(configs.NATSURL))
	if len(peers) == 0 && len(external) == 0 {
		return nil
	}
	ms := func(key string) time.Duration { return time.Duration(v.Int64(key)) * time.Millisecond }
	o := cluster.Options{
		Listen: v.String(configs.ClusterListen), Advertise: v.String(configs.ClusterAdvertised),
		Peers: make(map[messages.NodeID]string), StoreDir: filepath.Join(s.dataDir, journalFolder), SyncInterval: ms(configs.JournalSyncMs),
		AllowClear: v.Bool(configs.ClusterAllowClear),
		TLSCert:    v.String(configs.ClusterTLSCertificate), TLSKey: v.String(configs.ClusterTLSKey), TLSCA: v.String(configs.ClusterTLSCA),
		User: v.String(configs.ClusterUser), Password: v.String(configs.ClusterPassword),
		BeatInterval: ms(configs.ClusterBeatMs), DeadAfter: ms(configs.ClusterDeadMs), JournalBytesMax: v.Int64(configs.JournalBytes),
		ElectionTimeout: ms(configs.JournalElectionMs),
	}
	if len(external) > 0 {
		if len(peers) > 0 {
			fault(configs.ClusterPeers, "set together with "+configs.NATSURL+": nodes meet either one another's servers or the existing ones")
		}
		o.External = &cluster.External{
			URLs: external, User: v.String(configs.NATSUser), Password: v.String(configs.NATSPassword), Token: v.String(configs.NATSToken),
			CredentialsFile: v.String(configs.NATSCredentials),
			TLSCert:         v.String(configs.NATSTLSCertificate), TLSKey: v.String(configs.NATSTLSKey), TLSCA: v.String(configs.NATSTLSCA),
		}
		s.natsReplicas, s.cluster = v.Int(configs.NATSReplicas), &o
		return o.Validate(s.nodeID)
	}
	for _, peer := range peers {
		idText, address, ok := strings.Cut(peer, "@")
		id, err := strconv.ParseInt(idText, 10, 32)
		if !ok || err != nil || id < 0 {
			fault(configs.ClusterPeers, fmt.Sprintf("%q is not id@host:port", peer))
			continue
		}
		if _, twice := o.Peers[messages.NodeID(id)]; twice {
			fault(configs.ClusterPeers, fmt.Sprintf("node %d stands there twice", id))
		}
		o.Peers[messages.NodeID(id)] = address
	}
	if o.Listen == "" {
		if o.Listen = o.Peers[s.nodeID]; o.Listen == "" {
			fault(configs.ClusterListen, fmt.Sprintf("not set, and node %d isn't among %s", s.nodeID, configs.ClusterPeers))
			return nil
		}
	}
	s.cluster = &o
	return o.Validate(s.nodeID)
}

// journalFolder is where JetStream keeps the journal, in the data folder.
const journalFolder = "kagami-journal"

func checkHostPort(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("want host:port: %w", err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %s is not from 0 to 65535", port)
	}
	return nil
}
