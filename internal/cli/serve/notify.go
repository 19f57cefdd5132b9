package serve

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/notify"
)

// notifyFlags configure notifications about limits that are nearly used up.
type notifyFlags struct {
	URL      string      `json:"webhook"`
	Secret   secret.Text `json:"webhook_secret"`
	Insecure bool        `json:"webhook_insecure"`
	Log      bool        `json:"log_near_limit"`
}

func (f *notifyFlags) check() error {
	switch {
	case f.URL == "" && (f.Secret.File != "" || f.Insecure):
		return kit.Usage(errors.New("--webhook-secret-file and --webhook-insecure need --webhook"))
	case f.URL != "" && !f.Secret.Given():
		return kit.Usage(errors.New("--webhook needs a secret: give --webhook-secret-file, or set " +
			"WEIR_SERVE_WEBHOOK_SECRET"))
	}
	return nil
}

// flag returns the flag or variable that a mistake is about.
func (f *notifyFlags) flag(err error) string {
	bad, ok := errors.AsType[*weir.ConfigError](err)
	switch {
	case !ok || bad.Field != notify.FieldSecret:
		return "--webhook"
	case f.Secret.File != "":
		return "--webhook-secret-file"
	}
	return "WEIR_SERVE_WEBHOOK_SECRET"
}

func (f *notifyFlags) open(_ context.Context, s *serving) error {
	if f.Log {
		s.observers = append(s.observers, &weir.Observer{NearLimit: notify.Logged(s.log)})
	}
	if f.URL == "" {
		return nil
	}
	// Whoever chooses the limits chooses what is signed.
	if err := s.run.MaySend("webhook-secret", "webhook"); err != nil {
		return err
	}
	hook, err := notify.New(notify.Config{
		URL: f.URL, Insecure: f.Insecure, Secret: []byte(f.Secret.Reveal()), Log: s.log,
		UserAgent: "weir/" + kit.Build().Version,
	})
	if err != nil {
		return inFlag(f.flag(err), err)
	}
	s.closeAtEnd(5*time.Second, "near-limit events", hook.Close)
	s.observers = append(s.observers, &weir.Observer{NearLimit: hook.NearLimit})
	return nil
}
