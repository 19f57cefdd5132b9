package httpapi

import (
	"log/slog"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// requestList are the requests of POST /v1/acquire/batch.
type requestList []acquireBody

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (l *requestList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != '[' && kind != 0 {
		return badField("requests", "must be an array")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; dec.PeekKind() != ']'; i++ {
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if i == decide.MaxBatch {
			return badField("requests", "must be 1 to %d, are more", decide.MaxBatch)
		}
		a, err := parseAcquire(value)
		if err == nil && a.wait > 0 {
			err = badField("wait", "is not for batches")
		}
		if err != nil {
			return decide.OfRequest(i, err)
		}
		*l = append(*l, a)
	}
	_, err := dec.ReadToken()
	return err
}

// What is reserved for the answer to a request of a batch, with an id and statuses, and without.
const result, briefResult = 1 << 10, 128

// acquireBatch decides several requests.
func (s decisions) acquireBatch(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery != "" {
		return errQuery
	}
	var (
		reqs          requestList
		atomic, brief bool
	)
	if err := decode(r, member{"requests", &reqs}, member{"atomic", &atomic}, member{"brief", &brief}); err != nil {
		return err
	}
	batch, err := decide.NewBatch(s.decide, callerOf(r), len(reqs), atomic)
	if err != nil {
		return err
	}
	for i := range reqs {
		if err := batch.Add(reqs[i].namespace, &reqs[i].request); err != nil {
			return err
		}
	}
	a := batchAnswer{decisions: s, r: r, brief: brief, size: result, results: make([][]byte, len(reqs), len(reqs)+1)}
	if brief {
		a.size = briefResult
	}
	if !a.room(a.size * len(reqs)) {
		return decide.ErrOverloaded
	}
	if atomic {
		lim, leases, err := batch.All(r.Context(), brief)
		if err != nil {
			return err
		}
		for i, lease := range leases {
			if !a.add(i, lim, lease, nil) {
				decide.TakeBack(r.Context(), leases...)
				return decide.ErrOverloaded
			}
		}
	} else {
		batch.Each(r.Context(), slog.String("route", r.Pattern), a.addOrTakeBack)
	}
	w.Header()["Content-Type"] = jsonType
	write(w, http.StatusOK, append(a.results, []byte("]}\n"))...)
	return nil
}

// batchAnswer is the answer to a batch.
type batchAnswer struct {
	decisions
	r       *http.Request
	brief   bool
	size    int // what is reserved for each result
	results [][]byte
}

// room reserves more for the answer.
func (a *batchAnswer) room(bytes int) bool {
	return a.decide.Reserve(a.r.Context(), callerOf(a.r), bytes, 0)
}

// add adds the answer to a request, if there is no room a short one. It returns false if a short one would leave out
// the lease by which slots are given back.
func (a *batchAnswer) add(i int, lim *weir.Limiter, lease *weir.Lease, err error) bool {
	b := append(make([]byte, 0, a.size), ',')
	if i == 0 {
		b = append(b[:0], `{"results":[`...)
	}
	var p *problem
	if err != nil {
		p = new(a.problemOf(a.r, err))
	}
	a.results[i] = a.appendResult(b, a.r, lim, lease, p, a.brief)
	switch {
	case a.room(cap(a.results[i]) - a.size):
	case err == nil && lease.Slots() != nil:
		return false
	default:
		p.shorten()
		a.results[i] = a.appendResult(b, a.r, lim, lease, p, true)
	}
	return true
}

// addOrTakeBack adds the answer to a request, or takes the lease back.
func (a *batchAnswer) addOrTakeBack(i int, lim *weir.Limiter, lease *weir.Lease, err error) {
	if !a.add(i, lim, lease, err) {
		decide.TakeBack(a.r.Context(), lease)
		a.add(i, lim, nil, decide.ErrOverloaded)
	}
}

// appendResult appends the answer to one request, which was admitted if there is no problem.
func (s decisions) appendResult(
	b []byte, r *http.Request, lim *weir.Limiter, lease *weir.Lease, p *problem, brief bool,
) []byte {
	if p == nil && brief {
		if err := decide.NoSlots(r.Context(), lease); err != nil {
			p = new(s.problemOf(r, err))
		}
	}
	if p == nil {
		return s.appendAdmitted(b, r, lim, lease, brief)
	}
	p.brief = brief
	b = p.append(b)
	return b[:len(b)-len("\n")]
}
