package cli

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
	"github.com/weirlimits/weir/internal/notify"
)

// notifyFlags say who is told of limits that are near their end.
type notifyFlags struct {
	url        string
	secret     string
	secretFile string
	insecure   bool
	log        bool
}

func (f *notifyFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "webhook", "", "`URL` to tell of limits that are near their end, or refuse for the first time in an hour")
	flags.StringVar(&f.secretFile, "webhook-secret-file", "", "`FILE` of the secret that signs what the webhook gets")
	flags.StringVar(&f.secret, "webhook-secret", "", "the `SECRET` itself, better set in WEIR_SERVE_WEBHOOK_SECRET")
	flags.BoolVar(&f.insecure, "webhook-insecure", false, "allow a webhook beyond this machine without https")
	flags.BoolVar(&f.log, "log-near-limit", false, "log what the webhook is told, or would be")
}

func (f *notifyFlags) check() error {
	switch {
	case f.url == "" && (f.secretFile != "" || f.insecure):
		return usageError{errors.New("--webhook-secret-file and --webhook-insecure go with --webhook")}
	case f.url != "" && f.secret == "" && f.secretFile == "":
		return usageError{errors.New("--webhook needs a secret: give --webhook-secret-file, or set WEIR_SERVE_WEBHOOK_SECRET")}
	case f.secret != "" && f.secretFile != "":
		return usageError{errors.New("give one of --webhook-secret-file and --webhook-secret")}
	}
	return nil
}

// open returns what sends from now on, nil if nothing is to be sent. It is to be ended with close.
func (f *notifyFlags) open(log *slog.Logger) (*notify.Webhook, error) {
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
	return notify.New(notify.Config{URL: f.url, Insecure: f.insecure, Secret: secret, Log: log, UserAgent: "weir/" + build().Version})
}

// observer tells the webhook and the log, and nobody where there is neither.
func (f *notifyFlags) observer(hook *notify.Webhook, log *slog.Logger) *weir.Observer {
	var sent, logged *weir.Observer
	if hook != nil {
		sent = &weir.Observer{NearLimit: hook.NearLimit}
	}
	if f.log {
		logged = &weir.Observer{NearLimit: notify.Logged(log)}
	}
	return weir.JoinObservers(sent, logged)
}

// close sends what waits, if that is soon done.
func (f *notifyFlags) close(hook *notify.Webhook, log *slog.Logger) {
	if hook == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := hook.Close(ctx); err != nil {
		log.Warn("near-limit events were lost", slog.Any("error", err))
	}
}
