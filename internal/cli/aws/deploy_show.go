package aws

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

// plan prints the changes that are about to be made.
func plan(a *kit.Run, changes []deploy.Change) {
	if len(changes) == 0 {
		return
	}
	t := &term.Table{Header: []string{"", "RESOURCE", "TYPE", "WHAT"}}
	for _, c := range changes {
		action := c.Action
		switch action {
		case "remove", "replace", "may replace":
			action = a.Out.Bad(action)
		case "add", "adopt":
			action = a.Out.Good(action)
		}
		t.Rows = append(t.Rows, []string{action, c.Resource, c.Type, strings.Join(c.What, ", ")})
	}
	a.Out.Table(t)
}

// deployed prints the outcome, after the plan.
func deployed(a *kit.Run, res *deploy.Result) {
	name := res.Stack + " in " + res.Region
	switch {
	case res.DryRun && len(res.Changes) == 0:
		a.Out.Printf("stack %s is up to date\n", name)
	case res.DryRun && res.Created:
		a.Out.Printf("stack %s would be created; this was a dry run\n", name)
	case res.DryRun:
		a.Out.Printf("stack %s would be changed; this was a dry run\n", name)
	case len(res.Changes) == 0:
		a.Out.Printf("stack %s is up to date: nothing to change\n", name)
	case res.Created:
		a.Out.Printf("created stack %s\n", name)
	default:
		a.Out.Printf("changed stack %s\n", name)
	}
	if len(res.Outputs) == 0 {
		return
	}
	t := &term.Table{Header: []string{"OUTPUT", "VALUE"}}
	for _, k := range slices.Sorted(maps.Keys(res.Outputs)) {
		t.Rows = append(t.Rows, []string{k, res.Outputs[k]})
	}
	a.Out.Table(t)
}

// teller shows the progress of a stack: a line for each finished resource, and on a terminal how many are finished.
type teller struct {
	screen   *term.Screen
	progress *term.Progress
	total    int
	done     int
	begun    map[string]time.Time
}

// verbs are the words for an event, by its final state.
var verbs = map[string]string{
	"CREATE_COMPLETE": "created", "UPDATE_COMPLETE": "changed", "DELETE_COMPLETE": "deleted", "DELETE_SKIPPED": "kept",
	"IMPORT_COMPLETE": "adopted",
}

func (t *teller) tell(e deploy.Event) {
	if t.begun == nil {
		t.begun = make(map[string]time.Time)
	}
	if e.Whole() {
		if strings.Contains(e.State, "ROLLBACK_IN_PROGRESS") {
			t.line(t.screen.Bad("rolling back") + " " + e.Reason)
		}
		return
	}
	if !e.Ended() {
		if _, ok := t.begun[e.Resource]; !ok {
			t.begun[e.Resource] = e.At
		}
		t.progress.Update(e.Resource, share(t.done, t.total))
		return
	}
	verb, text := verbs[e.State], e.Resource+" ("+e.Type+")"
	switch {
	case e.Failed():
		verb, text = t.screen.Bad("failed"), text+": "+e.Reason
	case verb == "": // a failure caused by another one
		return
	}
	if at, ok := t.begun[e.Resource]; ok && e.At.After(at) {
		text += t.screen.Faint(" " + kit.Span(e.At.Sub(at)))
		delete(t.begun, e.Resource)
	}
	t.done++
	t.line(verb + " " + text)
}

func share(done, total int) float64 {
	if total == 0 {
		return -1
	}
	return float64(done) / float64(total)
}

func (t *teller) line(text string) {
	t.progress.Done()
	t.screen.Println(text)
}
