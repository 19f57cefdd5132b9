package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/notify"
)

// notifyFlags configure notifications about limits that are nearly used up.
type notifyFlags struct {
	URL        string `json:"webhook"`
	SecretFile string `json:"webhook_secret_file"`
	Secret     string `json:"webhook_secret"`
	Insecure   bool   `json:"webhook_insecure"`
	Log        bool   `json:"log_near_limit"`

	hook *notify.Webhook // nil: none
}

func (f *notifyFlags) check() error {
	switch {
	case f.URL == "" && (f.SecretFile != "" || f.Insecure):
		return kit.Usage(errors.New("--webhook-secret-file and --webhook-insecure need --webhook"))
	case f.URL != "" && f.Secret == "" && f.SecretFile == "":
		return kit.Usage(errors.New("--webhook needs a secret: give --webhook-secret-file, or set " +
			"WEIR_SERVE_WEBHOOK_SECRET"))
	case f.Secret != "" && f.SecretFile != "":
		return kit.Usage(errors.New("use only one of --webhook-secret-file and --webhook-secret"))
	}
	return nil
}

func (f *notifyFlags) open(_ context.Context, s *serving) (err error) {
	if f.hook, err = f.webhook(s.log); err != nil {
		return err
	}
	s.atEnd(func() { f.close(s.log) })
	s.observers = append(s.observers, f.observer(s.log))
	return nil
}

// webhook returns the webhook, or nil if there is none.
func (f *notifyFlags) webhook(log *slog.Logger) (*notify.Webhook, error) {
	if f.URL == "" {
		return nil, nil //nolint:nilnil // a nil webhook is none
	}
	secret := []byte(f.Secret)
	if f.SecretFile != "" {
		text, err := os.ReadFile(f.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("--webhook-secret-file: %w", err)
		}
		secret = bytes.TrimRight(text, "\r\n")
	}
	return notify.New(notify.Config{
		URL: f.URL, Insecure: f.Insecure, Secret: secret, Log: log,
		UserAgent: "weir/" + kit.Build().Version,
	})
}

// observer passes near-limit events to the webhook and the log, if there are any.
func (f *notifyFlags) observer(log *slog.Logger) *weir.Observer {
	var sent, logged *weir.Observer
	if f.hook != nil {
		sent = &weir.Observer{NearLimit: f.hook.NearLimit}
	}
	if f.Log {
		logged = &weir.Observer{NearLimit: notify.Logged(log)}
	}
	return weir.JoinObservers(sent, logged)
}

// close sends the waiting events, unless that takes too long.
func (f *notifyFlags) close(log *slog.Logger) {
	if f.hook == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := f.hook.Close(ctx); err != nil {
		log.Warn("near-limit events were lost", slog.Any("error", err))
	}
}
