package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/notify"
)

// notifyFlags configure notifications about limits that are nearly used up.
type notifyFlags struct {
	url        string
	secret     string
	secretFile string
	insecure   bool
	log        bool

	hook *notify.Webhook // nil: none
}

func (f *notifyFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "webhook", "",
		"`URL` to notify when a limit is nearly used up, or refuses for the first time in an hour")
	flags.StringVar(&f.secretFile, "webhook-secret-file", "", "`FILE` with the secret that signs webhook requests")
	flags.StringVar(&f.secret, "webhook-secret", "",
		"`SECRET` that signs webhook requests; preferably set WEIR_SERVE_WEBHOOK_SECRET instead")
	flags.BoolVar(&f.insecure, "webhook-insecure", false, "allow a webhook on another machine without https")
	flags.BoolVar(&f.log, "log-near-limit", false, "log near-limit events, with or without a webhook")
}

func (f *notifyFlags) check() error {
	switch {
	case f.url == "" && (f.secretFile != "" || f.insecure):
		return kit.Usage(errors.New("--webhook-secret-file and --webhook-insecure need --webhook"))
	case f.url != "" && f.secret == "" && f.secretFile == "":
		return kit.Usage(errors.New("--webhook needs a secret: give --webhook-secret-file, or set " +
			"WEIR_SERVE_WEBHOOK_SECRET"))
	case f.secret != "" && f.secretFile != "":
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
	if f.url == "" {
		return nil, nil //nolint:nilnil // a nil webhook is none
	}
	secret := []byte(f.secret)
	if f.secretFile != "" {
		text, err := os.ReadFile(f.secretFile)
		if err != nil {
			return nil, fmt.Errorf("--webhook-secret-file: %w", err)
		}
		secret = bytes.TrimRight(text, "\r\n")
	}
	return notify.New(notify.Config{
		URL: f.url, Insecure: f.insecure, Secret: secret, Log: log,
		UserAgent: "weir/" + kit.Build().Version,
	})
}

// observer passes near-limit events to the webhook and the log, if there are any.
func (f *notifyFlags) observer(log *slog.Logger) *weir.Observer {
	var sent, logged *weir.Observer
	if f.hook != nil {
		sent = &weir.Observer{NearLimit: f.hook.NearLimit}
	}
	if f.log {
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
