package deploy_test

import (
	"os"
	"testing"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/weirlimits/weir/internal/aws/deploy"
	"github.com/weirlimits/weir/internal/aws/function/pack"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// TestAWS deploys, changes, reads and destroys a stack with its data on AWS itself, in the account and region of the
// environment. It takes about ten minutes and a few cents: requests, and a share of the alarms and a dashboard. What
// remains is the code bucket and, from the first of the stack's two lives, the archive's empty bucket.
func TestAWS(t *testing.T) {
	t.Parallel()
	if os.Getenv("WEIR_TEST_AWS") == "" {
		t.Skip("make test-aws runs it, on an account of yours")
	}
	ctx := t.Context()
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		t.Fatal(err)
	}
	clients := deploy.Dial(cfg)
	d := deploy.New(deploy.Config{
		Clients: clients, Version: "test", Zip: pack.Zip,
		Tell:    func(e deploy.Event) { t.Log(e.At.Format("15:04:05"), e.State, e.Resource, e.Reason) },
		Planned: func(all []deploy.Change) { t.Log(all) },
	})
	p := request("weir-test-" + name())
	t.Logf("stack %s in %s", p.Stack, cfg.Region)
	if res, err := d.Deploy(ctx, dry(p)); err != nil || len(res.Changes) == 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := d.Stack(ctx, p.Stack); err == nil {
		t.Error("a dry run leaves a stack")
	}
	if _, err := d.Deploy(ctx, p); err != nil {
		t.Fatal(err)
	}
	if res, err := d.Deploy(ctx, p); err != nil || len(res.Changes) > 0 {
		t.Errorf("the same again: %+v, %v", res, err)
	}
	if _, err := d.Deploy(ctx, request(p.Stack, "Memory", "512")); err != nil {
		t.Error(err)
	}
	if s, err := d.Status(ctx, p.Stack); err != nil || len(s.Problems) > 0 || s.Schema.Version != driver.SchemaVersion || len(s.Functions) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	// Destroyed and deployed again: the table is adopted.
	doomed, err := d.Doomed(ctx, p.Stack)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Destroy(ctx, doomed, false); err != nil {
		t.Fatal(err)
	}
	if res, err := d.Deploy(ctx, p); err != nil || !res.Created {
		t.Errorf("again: %+v, %v", res, err)
	}
	if doomed, err = d.Doomed(ctx, p.Stack); err != nil {
		t.Fatal(err)
	}
	if err := d.Destroy(ctx, doomed, true); err != nil {
		t.Error(err)
	}
}
