package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/address"
)

// configure sets the configuration's defaults, checks it, and derives the client's options.
func (s *server) configure() error {
	c := &s.cfg
	c.CallTimeout, c.Connections = cmp.Or(c.CallTimeout, time.Second), cmp.Or(c.Connections, 2)
	s.options = rueidis.ClientOption{
		Username: c.Username, Password: c.Password,
		Dialer:       net.Dialer{Timeout: c.CallTimeout},
		DisableCache: true, DisableRetry: true,
		PipelineMultiplex: cmp.Or(bits.TrailingZeros(uint(c.Connections)), -1), // 0 would select the default of rueidis
		ConnWriteTimeout:  max(10*c.CallTimeout, time.Second),
	}
	prefix, err := s.parse()
	c.Prefix, c.Margin = cmp.Or(c.Prefix, prefix, "weir"), cmp.Or(c.Margin, time.Hour)
	s.keys = keys{c.Prefix}
	bad := func(reason string) error {
		return &store.Error{Op: "open", Key: s.where(), Err: configError(reason)}
	}
	switch {
	case err != nil:
		return &store.Error{
			Op: "open", Key: s.where(), Err: configError(err.Error()),
			Hint: "write redis://HOST:6379/0, rediss://…, unix:///PATH, redis+sentinel://HOST/MASTER or " +
				"redis+cluster://HOST",
		}
	case strings.ContainsAny(c.Prefix, "{}\x00") || len(c.Prefix) > 255:
		return bad("Config.Prefix has a brace or a zero byte, or is too long")
	case c.CallTimeout < 0:
		return bad("Config.CallTimeout must be positive")
	case c.Margin < time.Second:
		return bad("Config.Margin must be at least a second")
	case c.Connections < 1 || c.Connections > 64 || c.Connections&(c.Connections-1) != 0:
		return bad("Config.Connections must be a power of two, at most 64")
	}
	return nil
}

// configError describes what is wrong with a configuration. It matches [store.ErrInvalid].
type configError string

// Error returns the description.
func (e configError) Error() string { return string(e) }

// Is reports whether target is [store.ErrInvalid].
func (e configError) Is(target error) bool { return target == store.ErrInvalid }

// parse reads the address into the options and returns the prefix that it names.
func (s *server) parse() (prefix string, err error) {
	u, err := address.Parse(s.cfg.Address)
	if err != nil {
		return "", err
	}
	o := &s.options
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	prefix, db, err := s.queryOptions(u)
	if err != nil {
		return "", err
	}
	o.DialCtxFn = s.dialer("tcp", false)
	path := strings.Trim(u.Path, "/")
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	if scheme == "rediss" || scheme == "valkeys" {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if s.cfg.TLS != nil {
			o.TLSConfig = s.cfg.TLS.Clone()
		}
	}
	port := "6379"
	switch {
	case u.Scheme == "unix":
		if u.Host != "" || path == "" {
			return "", errors.New("names no socket")
		}
		o.InitAddress, o.ForceSingleClient, o.DialCtxFn = []string{u.Path}, true, s.dialer("unix", true)
	case kind == "sentinel":
		port = "26379"
		if o.Sentinel.MasterSet, db, _ = strings.Cut(path, "/"); o.Sentinel.MasterSet == "" {
			return "", errors.New("names no primary")
		}
		o.Sentinel.Username, o.Sentinel.Password = s.cfg.SentinelUsername, s.cfg.SentinelPassword
		o.Sentinel.Dialer, o.Sentinel.TLSConfig = o.Dialer, o.TLSConfig
	case kind == "cluster":
		s.cluster = true
		if path != "" {
			return "", errors.New("a cluster has no numbered databases")
		}
	case kind == "":
		o.ForceSingleClient, o.DialCtxFn, db = true, s.dialer("tcp", true), path
	}
	if o.InitAddress == nil {
		if err := s.setServers(u.Host, port, kind == ""); err != nil {
			return "", err
		}
	}
	if db != "" {
		if o.SelectDB, err = strconv.Atoi(db); err != nil || o.SelectDB < 0 {
			return "", errors.New("the database " + strconv.Quote(db) + " is not a number")
		}
	}
	return prefix, nil
}

// queryOptions reads the options in the query of an address.
func (s *server) queryOptions(u *url.URL) (prefix, db string, err error) {
	for key, values := range u.Query() {
		switch value := values[len(values)-1]; {
		case key == "prefix" && value != "":
			prefix = value
		case key == "db" && u.Scheme == "unix":
			db = value
		case key == "volatile" && (value == "true" || value == "false"):
			s.cfg.Volatile = s.cfg.Volatile || value == "true"
		case key == "volatile":
			return "", "", errors.New("the option volatile must be true or false, not " + strconv.Quote(value))
		case key == "margin":
			margin, err := time.ParseDuration(value)
			if err != nil || margin < time.Second {
				return "", "", fmt.Errorf("the option margin must be at least 1s, such as 10m, not %q", value)
			}
			s.cfg.Margin = cmp.Or(s.cfg.Margin, margin)
		default:
			return "", "", errors.New(
				"unknown option " + strconv.Quote(key) + ": there are prefix, margin and volatile, and with unix: db",
			)
		}
	}
	return prefix, db, nil
}

// setServers sets the addresses to connect to, and for a single server the name that its certificate must have.
func (s *server) setServers(hosts, port string, single bool) error {
	o := &s.options
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address.WithPort(host, port)
		if err != nil {
			return err
		}
		o.InitAddress = append(o.InitAddress, addr)
	}
	if single && len(o.InitAddress) > 1 {
		return errors.New("names several servers: that is for sentinels and clusters")
	}
	if o.TLSConfig != nil && o.TLSConfig.ServerName == "" && single {
		o.TLSConfig.ServerName, _, _ = net.SplitHostPort(o.InitAddress[0])
	}
	return nil
}

// Knows reports whether a URL scheme is one of Redis's.
func Knows(scheme string) bool { return address.Knows(scheme) }

// where names the server in messages, without the password.
func (s *server) where() string {
	if len(s.options.InitAddress) == 0 {
		return "redis"
	}
	name := strings.Join(s.options.InitAddress, ",")
	if m := s.options.Sentinel.MasterSet; m != "" {
		name += "/" + m
	}
	return name
}
