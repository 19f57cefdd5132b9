package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api/client"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

// watchFlags select what to watch: a server's decisions, or what an entity has left.
type watchFlags struct {
	Entity   string `json:"entity" arg:"ENTITY"`
	Resource string `json:"resource" arg:"RESOURCE"`
	Once     bool   `json:"once"`
}

// WatchCmd returns the command weir watch.
func WatchCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "watch [ENTITY RESOURCE]", Short: "Show live what a server decides, or what one entity has left",
		Long: `Shows how many requests a server allows and refuses, how fast it decides, and which entities
spend most and are refused most. With ENTITY and RESOURCE, shows what the entity has left of
each of its limits. The command runs until interrupted or until you type q, and reconnects
when the server comes back.

On a terminal, the display updates in place. In a pipe, the command writes a line per second
or per change; with -o json, it writes the server's own events, one per line.

Without --server, the server is http://127.0.0.1:8080. A token comes from WEIR_TOKEN.`,
		Example: `  weir watch
  weir watch key-alice gpt-4 --server https://limits.example.com
  weir watch --once -o json`,
	}, func(ctx context.Context, q *watchFlags) error {
		v, err := newViewer(a, q)
		if err != nil {
			return err
		}
		return v.run(ctx)
	})
}

// picture is the display of a server's events.
type picture interface {
	// read stores the data of an event.
	read(data []byte) error
	// draw returns the lines for a terminal of that size.
	draw(a *kit.Run, width, height int) []string
	// header and rows are for a pipe.
	header() []string
	rows() [][]string
}

// viewer shows a server's events.
type viewer struct {
	*kit.Run
	source  events
	picture picture
	once    bool

	trouble error // why the connection is down; nil while it is up
	retry   time.Time
	seen    bool // whether any event has arrived
}

func newViewer(a *kit.Run, q *watchFlags) (*viewer, error) {
	if a.Output == "yaml" {
		return nil, kit.Usage(errors.New("watch can write a table or json, but not yaml"))
	}
	a.Server = cmp.Or(a.Server, "http://127.0.0.1:8080")
	u, err := client.Base(string(a.Server))
	if err != nil {
		return nil, err
	}
	token, err := a.Token(secret.Text{}, "server")
	if err == nil {
		err = client.CheckHeader("token", token.Reveal())
	}
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if namespace := a.Requested(); namespace != "" {
		query.Set("namespace", namespace)
	}
	v := &viewer{Run: a, once: q.Once}
	path := "/v1/overview"
	if q.Entity != "" {
		path = "/v1/watch"
		query["entity"], query["resource"] = []string{q.Entity}, []string{q.Resource}
		v.picture = &limitsPicture{entity: q.Entity, resource: q.Resource}
	} else {
		v.picture = &overviewPicture{server: u.Host}
	}
	u.Path += path
	u.RawQuery = query.Encode()
	v.source = events{url: u.String(), token: token.Reveal()}
	v.source.via, err = a.Transport("server")
	return v, err
}

// errSeen ends a stream after the one event that --once needs.
var errSeen = errors.New("seen")

func (v *viewer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arrivals, ended := make(chan arrival), make(chan error, 1)
	go func() { ended <- v.source.run(ctx, !v.once, arrivals) }()

	var live *term.Live
	var quit <-chan struct{}
	if v.Out.Terminal && !v.once && v.Output == "table" {
		live = term.NewLive(v.Out, v.In)
		defer live.Close()
		quit = live.Quit()
	}
	look := time.NewTicker(200 * time.Millisecond) // to follow changes of the terminal's size and to update countdowns
	defer look.Stop()
	width, height, drawn := 0, 0, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil // an interrupt is the normal end of a watch
		case <-quit:
			return nil
		case err := <-ended:
			return err
		case got := <-arrivals:
			if err := v.arrived(got, live != nil); err != nil {
				if errors.Is(err, errSeen) {
					return nil
				}
				return err
			}
		case <-look.C:
			if live == nil {
				continue
			}
			if w, h := live.Size(); w == width && h == height && time.Since(drawn) < time.Second {
				continue
			}
		}
		if live != nil {
			width, height = live.Size()
			drawn = time.Now()
			live.Draw(v.lines(width, height))
		}
	}
}

// lines returns the whole display.
func (v *viewer) lines(width, height int) []string {
	var lines []string
	if v.trouble != nil {
		text := fmt.Sprintf("no connection: %v; retrying", v.trouble)
		if wait := time.Until(v.retry).Round(time.Second); wait > 0 {
			text += " in " + kit.Span(wait)
		}
		lines = append(lines, v.Out.Bad(term.Clean(text)), "")
	}
	if !v.seen {
		if v.trouble == nil {
			lines = append(lines, v.Out.Faint("connecting to "+term.Clean(v.source.url)))
		}
		return lines
	}
	return append(lines, v.picture.draw(v.Run, width, height-len(lines))...)
}

// arrived handles an event or the loss of the connection, and prints it unless the display is live.
func (v *viewer) arrived(got arrival, live bool) error {
	if got.trouble != nil {
		v.trouble, v.retry = got.trouble, time.Now().Add(got.again)
		if !live {
			text := fmt.Sprintf("no connection: %v; retrying in %s", got.trouble, kit.Span(got.again))
			v.Err.Println(v.Err.Bad("weir:") + " " + term.Clean(text))
		}
		return nil
	}
	if v.trouble != nil && !live {
		v.Err.Println("weir: reconnected")
	}
	first := !v.seen
	v.trouble, v.seen = nil, true
	if err := v.picture.read(got.data); err != nil {
		return fmt.Errorf("the server's answer cannot be read: is %s a weir server? %w", v.source.url, err)
	}
	switch {
	case live:
		return nil
	case v.Output == "json":
		if _, err := v.Out.W.Write(append(jsonLine(got.data), '\n')); err != nil {
			return err
		}
	case v.Out.Terminal: // --once
		for _, line := range v.picture.draw(v.Run, v.Out.Width, 100) {
			v.Out.Println(strings.TrimRight(term.Clip(line, v.Out.Width), " "))
		}
	default:
		var b bytes.Buffer
		if first {
			b.WriteString(strings.Join(v.picture.header(), "\t") + "\n")
		}
		for _, row := range v.picture.rows() {
			for i, cell := range row {
				row[i] = term.Clean(cell)
			}
			b.WriteString(strings.Join(row, "\t") + "\n")
		}
		if _, err := v.Out.W.Write(b.Bytes()); err != nil {
			return err
		}
	}
	if v.once {
		return errSeen
	}
	return nil
}
