package dynamodb_test

import (
	"bufio"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// workerEnv turns the test binary into a worker: it reads orders, one per line, and answers each with a report.
const workerEnv = "WEIR_TEST_DYNAMODB_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		work()
		return
	}
	if endpoint := os.Getenv(holderEnv); endpoint != "" {
		if err := runSlotHolder(endpoint, os.Getenv(holderTable), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// order tells a worker what to do.
type order struct {
	Endpoint, Table string
	Children        []store.Bucket // each take debits one of them and the parent
	Child           *store.Limit
	Parent          store.Bucket
	Versions        []*store.Limit // versions of the parent's limit, each in force for the same time
	Start, End      time.Time
	Skew            time.Duration
	Prefetch        bool
	Patient         bool // no faults are injected: however busy the machine is, every call is answered
	Returns         bool // half of what is admitted is returned, all of it or a part, half of that by an ID
}

// report is what a worker's callers were told: what was admitted, in millitokens.
type report struct {
	Admitted int64
	Returned int64
	Doubtful int64 // returns without an answer
	Errors   int
	First    string // the first error
}

// fail counts an error.
func (r *report) fail(err error) {
	if r.Errors++; r.First == "" {
		r.First = err.Error()
	}
}

const callers = 16 // of each worker

// work is a worker's main loop.
func work() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var o order
		err := json.Unmarshal(in.Bytes(), &o)
		var r report
		if err == nil {
			r, err = o.carryOut()
		}
		if err != nil {
			r.Errors, r.First = 1_000_000, err.Error()
		}
		if out.Encode(r) != nil {
			return
		}
	}
}

// retrying turns a test's client into one as users have it, with the SDK's own retries.
func retrying(o *sdk.Options) {
	tuned(o)
	o.Retryer = retry.NewStandard()
}

// giveBack returns a part of what a take debited, as a caller does who asked for more than it used, or that failed.
// With an ID, it is repeated until it is known to have been accepted; whether its tokens came back may then be unknown.
func giveBack(s *dynamodb.Store, debits []store.Debit, id string) (returned int64, err error) {
	returned = debits[0].Charges[0].Amount
	if rand.IntN(2) == 0 {
		returned = rand.Int64N(returned + 1)
	}
	for i := range debits {
		debits[i].Charges[0].Amount = -returned
	}
	st := store.Settle{Debits: debits}
	if rand.IntN(2) == 0 {
		st.ID, st.Expires = id, time.Now().Add(time.Hour)
	}
	for range 5 {
		if _, err = s.Settle(context.Background(), st); err == nil || st.ID == "" || errors.Is(err, store.ErrSettled) {
			break
		}
	}
	return returned, err
}

func (o *order) carryOut() (r report, err error) {
	cfg := dynamodb.Config{
		Client: dynamotest.Dial(o.Endpoint, retrying), Table: o.Table,
		Now: func() time.Time { return time.Now().Add(o.Skew) },
	}
	if o.Prefetch {
		cfg.Prefetch.Share = 0.1
	}
	if o.Patient {
		cfg.CallTimeout, cfg.WriteTimeout = patient, patient
	}
	s, err := dynamodb.New(cfg)
	if err != nil {
		return r, err
	}
	time.Sleep(time.Until(o.Start)) // real time: all workers start at once
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for time.Now().Before(o.End) {
				version := min(int(time.Since(o.Start)*time.Duration(len(o.Versions))/o.End.Sub(o.Start)), len(o.Versions)-1)
				n := 1000 + rand.Int64N(1000)
				debits := []store.Debit{charge(o.Parent, o.Versions[version], n)}
				debits[0].Epoch = uint64(version + 1)
				if len(o.Children) > 0 {
					debits = append(debits, charge(o.Children[rand.IntN(len(o.Children))], o.Child, n))
				}
				out, err := s.Take(context.Background(), store.Take{Debits: debits})
				mu.Lock()
				if err != nil && !errors.Is(err, store.ErrStaleLimits) {
					r.fail(err)
				} else if out.Allowed {
					r.Admitted += n
				}
				mu.Unlock()
				if o.Returns && out.Allowed && rand.IntN(2) == 0 {
					back, err := giveBack(s, debits, crand.Text())
					mu.Lock()
					if err == nil {
						r.Returned += back
					} else {
						r.Doubtful += back
						r.fail(err)
					}
					mu.Unlock()
				}
				if !out.Allowed {
					time.Sleep(2*time.Millisecond + rand.N(2*time.Millisecond)) // real time: to leave processor time to others
				}
			}
		})
	}
	wg.Wait()
	return r, s.Close()
}

// worker is another process, as the test sees it.
type worker struct {
	in  *json.Encoder
	out *json.Decoder
	cmd *exec.Cmd
}

// hire starts workers. They end with the test.
func hire(t *testing.T, n int) (ws []*worker) {
	t.Helper()
	for range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), workerEnv+"=1")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
		ws = append(ws, &worker{json.NewEncoder(in), json.NewDecoder(out), cmd})
	}
	return ws
}

// carryOut makes each worker carry out its own order.
func carryOut(ws []*worker, of func(i int) order) (sum report, err error) {
	for i, w := range ws {
		if err := w.in.Encode(of(i)); err != nil {
			return sum, err
		}
	}
	for i, w := range ws {
		var r report
		if err := w.out.Decode(&r); err != nil {
			return sum, fmt.Errorf("worker %d: %w", i, err)
		}
		sum.Admitted += r.Admitted
		sum.Returned += r.Returned
		sum.Doubtful += r.Doubtful
		sum.Errors += r.Errors
		if sum.First == "" {
			sum.First = r.First
		}
	}
	return sum, nil
}
