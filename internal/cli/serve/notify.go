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

func (f *notifyFlags) open(_ context.Context, s *serving) error {
	if f.Log {
		s.observers = append(s.observers, &weir.Observer{NearLimit: notify.Logged(s.log)})
	}
	if f.URL == "" {
		return nil
	}
	hook, err := f.webhook(s.log)
	if err != nil {
		return err
	}
	s.closeAtEnd(5*time.Second, "near-limit events", hook.Close)
	s.observers = append(s.observers, &weir.Observer{NearLimit: hook.NearLimit})
	return nil
}

func (f *notifyFlags) webhook(log *slog.Logger) (*notify.Webhook, error) {
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
