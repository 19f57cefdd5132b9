package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

// limitsPicture shows what one entity has left.
type limitsPicture struct {
	entity, resource string

	at     time.Time // the server's time of the event
	heard  time.Time // when it arrived
	limits []api.Status
}

func (p *limitsPicture) read(data []byte) error {
	var event struct {
		At     time.Time    `json:"at"`
		Limits []api.Status `json:"limits"`
	}
	if err := json.Unmarshal(data, &event); err != nil {
		return err
	}
	p.at, p.heard, p.limits = event.At, time.Now(), event.Limits
	return nil
}

func (p *limitsPicture) draw(a *kit.Run, width, _ int) []string {
	lines := []string{
		spread(width, a.Out.Bold("weir")+"  "+term.Clean(p.entity)+" on "+term.Clean(p.resource)+"  "+a.Out.Faint(
			"namespace "+term.Clean(cmp.Or(a.Requested(), "-")),
		),
			p.at.UTC().Format(time.TimeOnly)+" UTC"),
	}
	names := 0
	for i := range p.limits {
		names = max(names, lipgloss.Width(limitText(&p.limits[i])))
	}
	names = min(names, width/3)
	bar := min(max(8, width-names-4), 60)
	entity := ""
	for i := range p.limits {
		l := &p.limits[i]
		if l.Entity != entity || i == 0 {
			entity = l.Entity
			lines = append(lines, "", a.Out.Bold(term.Clean(entity))+a.Out.Faint("  "+originText(l)))
		}
		used := usedOf(l.Available, l.Burst)
		lines = append(lines, fmt.Sprintf("  %s  %s", term.Fit(limitText(l), names), a.Out.Bar(used, bar)))
		what := heldOrLeft(a, l.Available, l.Burst, l.Amount)
		if l.Available < 0 && !l.Slots() {
			what = "in debt by " + a.Out.Count(-l.Available)
			if l.Burst > 0 {
				what += ", burst " + a.Out.Count(l.Burst)
			}
			what = a.Out.Bad(what)
		}
		full := time.Duration(l.FullIn) - time.Since(p.heard)
		if l.EndsIn > 0 {
			what += ", " + endText(l, p.at)
		} else if full > 0 {
			what += ", full in " + kit.Span(full)
		}
		lines = append(lines, fmt.Sprintf("  %s  %s", term.Fit("", names), a.Out.Faint(percent(used)+" used, ")+what))
	}
	return lines
}

func originText(l *api.Status) string {
	text := "limits from level " + term.Clean(string(l.Source))
	if l.Manifest != "" {
		text += ", manifest " + term.Clean(l.Manifest)
	}
	return text
}

func (p *limitsPicture) header() []string {
	return []string{"AT", "ENTITY", "LIMIT", "AVAILABLE", "BURST", "FULL IN", "FROM"}
}

func (p *limitsPicture) rows() (rows [][]string) {
	for i := range p.limits {
		l := &p.limits[i]
		rows = append(rows, []string{
			kit.Instant(p.at), l.Entity, limitText(l), strconv.FormatInt(l.Available, 10),
			strconv.FormatInt(l.Burst, 10), span(l.FullIn), string(l.Source),
		})
	}
	return rows
}
