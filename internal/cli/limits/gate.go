package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest/gates"
)

const (
	// gateFormat is the format of a gate document, which defines how far rollouts may go.
	gateFormat = "weir-gate-1"
	// gateEvery is the minimum time between reads of the document: AppConfig allows a poll every 15 s; its agent polls
	// every 45 s.
	gateEvery = 15 * time.Second
	// gateFresh is how old the last read may be for a stage to begin, and gateStale for a stage to stay.
	gateFresh = 2 * gateEvery
	gateStale = 5 * time.Minute
)

// letting is a gate document.
type letting struct {
	Format   string         `json:"format"`
	Rollouts map[string]int `json:"rollouts"` // by manifest hash: the percentage of entities to which it may apply
	version  string
}

// approval is a gate that opens as far as a document allows. The document is deployed separately from the limits, for
// example by AppConfig. If the document is rolled back, the gate closes and the rollout is undone. While it is open, it
// does what the next gate does.
type approval struct {
	hash string
	read func(context.Context) (letting, error)
	tell func(string)
	next gates.Gate

	percent int // the current stage
	known   letting
	tried   time.Time
	good    time.Time // when the document was last read
	err     error     // why the last read failed; nil if it did not
	waits   string    // the last message about waiting
}

// Open implements gates.Gate.
func (g *approval) Open(ctx context.Context, percent int) (bool, error) {
	if err := g.look(ctx); err != nil {
		return false, err
	}
	if g.err != nil && time.Since(g.good) > gateFresh {
		return false, nil
	}
	if lets := g.known.Rollouts[g.hash]; lets < percent {
		if waits := fmt.Sprintf(
			"waiting: the gate (%s) allows %s for %d%% of the entities, not for %d%%", g.known.version, g.hash, lets,
			percent,
		); waits != g.waits {
			g.waits = waits
			g.tell(waits)
		}
		return false, nil
	}
	g.tell(
		fmt.Sprintf(
			"the gate (%s, read %s ago) is open for %d%%", g.known.version, time.Since(g.good).Round(time.Second),
			percent,
		),
	)
	return g.next.Open(ctx, percent)
}

// Begin implements gates.Gate.
func (g *approval) Begin(ctx context.Context, percent int) error {
	g.percent = percent
	return g.next.Begin(ctx, percent)
}

// Check implements gates.Gate.
func (g *approval) Check(ctx context.Context, last bool) (bool, error) {
	if err := g.look(ctx); err != nil {
		return false, err
	}
	if lets := g.known.Rollouts[g.hash]; lets < g.percent {
		//nolint:err113 // for people
		return false, fmt.Errorf(
			"the gate (%s) now allows it for %d%% of the entities, no longer for %d%%", g.known.version, lets,
			g.percent,
		)
	}
	return g.next.Check(ctx, last)
}

// look reads the document if it is due. It fails if the document could not be read for too long.
func (g *approval) look(ctx context.Context) error {
	if now := time.Now(); g.tried.IsZero() || now.Sub(g.tried) >= gateEvery {
		g.tried = now
		doc, err := g.read(ctx)
		switch {
		case err == nil && g.err != nil && !g.good.IsZero():
			g.tell("the gate can be read again")
		case err != nil && g.err == nil && !g.good.IsZero():
			g.tell("the gate cannot be read: " + err.Error())
		}
		if g.err = err; err == nil {
			g.known, g.good = doc, now
		}
	}
	switch {
	case g.err == nil:
		return nil
	case g.good.IsZero():
		return fmt.Errorf("read the gate: %w", g.err)
	case time.Since(g.good) > gateStale:
		return fmt.Errorf("the gate was last read %s ago: %w", time.Since(g.good).Round(time.Second), g.err)
	}
	return nil
}

// errGate describes a gate document.
var errGate = errors.New(
	`is not {"format": "` + gateFormat +
		`", "rollouts": {"sha256:…": 5}}, with a percentage for each hash, which weir limits plan -o json shows`,
)

// lettingOf returns a function that reads the document at a URL, such as that of AppConfig's agent:
// http://localhost:2772/applications/A/environments/E/configurations/P.
func lettingOf(client *http.Client, from string) func(context.Context) (letting, error) {
	return func(ctx context.Context) (l letting, err error) {
		body, header, err := get(ctx, client, from, "")
		if err != nil {
			return l, fmt.Errorf("%s: %w", from, err)
		}
		if json.Unmarshal(body, &l) != nil || l.Format != gateFormat {
			return l, fmt.Errorf("%s: the answer %w", from, errGate)
		}
		for hash, percent := range l.Rollouts {
			if percent < 0 || percent > 100 {
				//nolint:err113 // for people
				return l, fmt.Errorf("%s: %s: %d%% is not between 0%% and 100%%", from, hash, percent)
			}
		}
		l.version = "without a version"
		if v := header.Get("Configuration-Version"); v != "" { // set by AppConfig's agent
			l.version = "version " + v
		}
		return l, nil
	}
}

// get reads a small answer. Without a token it sends none.
func get(ctx context.Context, client *http.Client, from, token string) (body []byte, h http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the server answers %s", resp.Status) //nolint:err113 // for people
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return body, resp.Header, err
}

// checkGate refuses text that is not a URL.
func checkGate(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return kit.Usagef(
			"--gate %q is not a URL such as "+
				"http://localhost:2772/applications/weir/environments/weir/configurations/gate",
			secret.Address(text),
		)
	}
	return nil
}
