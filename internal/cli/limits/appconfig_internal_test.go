package limits

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	errAppConfig = errors.New("AppConfig is away")
	errBusy      = errors.New("a deployment is under way")
)

// appConfig is one AppConfig profile in one environment. Its clock is the bubble's.
type appConfig struct {
	growth time.Duration // duration of a deployment, linear, across all pollers
	bake   time.Duration // time after that; until it ends, an alarm rolls back

	mu       sync.Mutex
	versions []string
	deployed int // version; 0: none
	next     int // version being deployed; 0: none
	began    time.Time
	away     bool
}

// settle completes a deployment whose time is over.
func (c *appConfig) settle() {
	if c.next != 0 && time.Since(c.began) >= c.growth+c.bake {
		c.deployed, c.next = c.next, 0
	}
}

// deploy starts deploying a new version.
func (c *appConfig) deploy(content string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settle(); c.next != 0 {
		return errBusy
	}
	c.versions = append(c.versions, content)
	c.next, c.began = len(c.versions), time.Now()
	return nil
}

// alarm goes off: an unfinished deployment is rolled back.
func (c *appConfig) alarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	c.next = 0
}

func (c *appConfig) setAway(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

// session is one poller's session. It gets the version being deployed once the deployment reaches its share.
type session struct {
	at      float64 // from 0 up to, but not including, 1
	token   string  // for the next poll; valid once
	expires time.Time
	version int // last version sent
}

// tokenFor is how long a token is valid: a day, as in AppConfig.
const tokenFor = time.Hour

// latest is GetLatestConfiguration: it returns a body only if it has changed, and a token that is valid once, for tokenFor.
func (c *appConfig) latest(s *session, token string) (version int, body string, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	switch {
	case token != s.token || token == "" || time.Now().After(s.expires):
		return 0, "", http.StatusBadRequest
	case c.away:
		return 0, "", http.StatusInternalServerError
	}
	s.token, s.expires = s.token+"+", time.Now().Add(24*time.Hour)
	version = c.deployed
	if c.next != 0 && time.Since(c.began) >= time.Duration(s.at*float64(c.growth)) {
		version = c.next
	}
	switch version {
	case 0:
		return 0, "", http.StatusNotFound
	case s.version:
		return version, "", http.StatusOK
	}
	s.version = version
	return version, c.versions[version-1], http.StatusOK
}

// agent is AppConfig's agent, as an HTTP client's transport. It polls every 45 s, answers with what it has, and starts a
// new session if its token is rejected.
type agent struct {
	*appConfig

	path string
	down bool // whether the agent itself is down

	session *session
	polled  time.Time
	version int
	body    string
	status  int
	calls   []time.Time
}

const agentPolls = 45 * time.Second

// RoundTrip implements http.RoundTripper.
func (a *agent) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	down := a.down
	a.calls = append(a.calls, time.Now())
	a.mu.Unlock()
	if down {
		return nil, errAppConfig
	}
	if req.Method != http.MethodGet || req.URL.Path != a.path {
		return answer(http.StatusNotFound, 0, ""), nil
	}
	if a.body == "" || time.Since(a.polled) >= agentPolls {
		a.poll()
	}
	if a.body == "" {
		return answer(a.status, 0, ""), nil
	}
	return answer(http.StatusOK, a.version, a.body), nil
}

func (a *agent) poll() {
	a.polled = time.Now()
	for range 2 {
		if a.session == nil {
			a.session = &session{at: 0.5, token: "t", expires: time.Now().Add(tokenFor)}
		}
		version, body, status := a.latest(a.session, a.session.token)
		if a.status = status; status == http.StatusBadRequest {
			a.session = nil
			continue
		}
		if body != "" {
			a.version, a.body = version, body
		}
		return
	}
}

func (a *agent) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

// eager returns the shortest time between two calls.
func (a *agent) eager() time.Duration {
	least := time.Hour
	for i := range a.calls {
		if i > 0 {
			least = min(least, a.calls[i].Sub(a.calls[i-1]))
		}
	}
	return least
}

func answer(status, version int, body string) *http.Response {
	h := http.Header{}
	if version > 0 {
		h.Set("Configuration-Version", strconv.Itoa(version))
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Header: h,
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// gateText is a gate's document that lets each manifest go to the given percentage.
func gateText(lets map[string]int) string {
	var all []string
	for hash, percent := range lets {
		all = append(all, fmt.Sprintf("%q: %d", hash, percent))
	}
	slices.Sort(all)
	return fmt.Sprintf(`{"format": %q, "rollouts": {%s}}`, gateFormat, strings.Join(all, ", "))
}
