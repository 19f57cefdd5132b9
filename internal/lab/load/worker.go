package load

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Worker does parts of runs for a coordinator. Its target is set when it is started: a coordinator cannot point it
// elsewhere.
type Worker struct {
	// Open returns the target in a namespace, its measures, and a function that closes it.
	Open func(namespace string) (t Target, measures func() map[string]float64, end func() error, err error)
	// Token is the secret that a coordinator must present.
	Token string

	busy sync.Mutex // one run at a time
}

// job is a coordinator's request.
type job struct {
	Scenario  string           `json:"scenario"`
	Text      string           `json:"text"`
	Settings  traffic.Settings `json:"settings"`
	Namespace string           `json:"namespace"`
	Part      int              `json:"part"`
	Parts     int              `json:"parts"`
	// In is the time from the arrival of the request to the first call after the warm-up.
	In traffic.Span `json:"in"`
}

// message is one line of the answer to a job: the tally so far, and at last the final one.
type message struct {
	Tally *Tally `json:"tally,omitempty"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

const maxJob = 8 << 20

// ServeHTTP handles GET /v1/ready and POST /v1/run.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	want, got := sha256.Sum256([]byte("Bearer "+w.Token)), sha256.Sum256([]byte(r.Header.Get("Authorization")))
	if w.Token == "" || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		http.Error(rw, "wrong token for this worker", http.StatusUnauthorized)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/ready":
		rw.WriteHeader(http.StatusNoContent)
	case "POST /v1/run":
		if !w.busy.TryLock() {
			http.Error(rw, "the worker is busy with another run", http.StatusConflict)
			return
		}
		defer w.busy.Unlock()
		var j job
		if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxJob)).Decode(&j); err != nil {
			http.Error(rw, "read the job: "+err.Error(), http.StatusBadRequest)
			return
		}
		w.run(rw, r, &j, arrived)
	default:
		http.NotFound(rw, r)
	}
}

// run does a job and reports progress. It ends if the coordinator disconnects.
func (w *Worker) run(rw http.ResponseWriter, r *http.Request, j *job, arrived time.Time) {
	var mu sync.Mutex
	enc, control := json.NewEncoder(rw), http.NewResponseController(rw)
	send := func(m message) {
		mu.Lock()
		defer mu.Unlock()
		_ = errors.Join(enc.Encode(m), control.Flush()) // if the coordinator has gone, the context ends
	}
	t, err := w.do(r.Context(), j, arrived, func(t *Tally) { send(message{Tally: t}) })
	if err != nil {
		send(message{Error: err.Error()})
		return
	}
	send(message{Tally: t, Done: true})
}

func (w *Worker) do(ctx context.Context, j *job, arrived time.Time, progress func(*Tally)) (_ *Tally, err error) {
	if strings.ContainsAny(j.Scenario, "\x00\n") || j.Parts < 1 {
		return nil, errors.New("the job is invalid")
	}
	sc, err := traffic.Decode(j.Scenario, []byte(j.Text))
	if err != nil {
		return nil, err
	}
	p, err := traffic.NewPlan(sc, j.Settings)
	if err != nil {
		return nil, err
	}
	target, measures, end, err := w.Open(j.Namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	return Run(ctx, p, target, Options{
		Part: j.Part, Parts: j.Parts, Begin: arrived.Add(time.Duration(j.In)), Precise: true,
		Measures: measures, Progress: progress, Every: time.Second,
	})
}
