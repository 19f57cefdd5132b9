package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/term"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/redis"
)

// finding is the result of one check.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

type doctorView struct {
	Store    string    `json:"store"`
	OK       bool      `json:"ok"`
	Findings []finding `json:"findings"`
}

func (v *doctorView) add(name string, err error, detail string) {
	f := finding{Name: name, OK: err == nil, Detail: detail}
	if err != nil {
		f.Detail = err.Error()
		var known *weir.StoreError
		if errors.As(err, &known) {
			f.Detail, f.Remedy = known.Err.Error(), known.Hint
		}
	}
	v.Findings = append(v.Findings, f)
}

type doctorFlags struct {
	create, pitr, protect bool
	tags                  []string
}

func (a *app) doctorCmd() *cobra.Command {
	var flags doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the store can be used, and say what to do if it cannot",
		Long: `Checks the store without changing anything. For a DynamoDB table it checks the
credentials and region, the table with its keys, indexes and expiry, the version of its
layout, and how far this machine's clock is off. For a Redis server it checks the
connection, role, version, eviction policy and layout.

With --create-table it first creates the table, or completes an existing weir table. It
never changes a table that is not weir's.`,
		Example: `  weir doctor --store 'dynamodb://weir?region=eu-central-1'
  weir doctor --store 'dynamodb://weir?region=eu-central-1' --create-table --pitr --tag team=gateway`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), flags) },
	}
	cmd.Flags().BoolVar(&flags.create, "create-table", false, "first create the table, or complete it")
	cmd.Flags().BoolVar(&flags.pitr, "pitr", false, "with --create-table: turn on point-in-time recovery")
	cmd.Flags().BoolVar(&flags.protect, "deletion-protection", false, "with --create-table: turn on deletion protection")
	cmd.Flags().StringArrayVar(&flags.tags, "tag", nil, "with --create-table: add the tag `KEY=VALUE`; repeatable")
	return cmd
}

func (a *app) doctor(ctx context.Context, flags doctorFlags) error {
	scheme, rest, _ := strings.Cut(a.store, ":")
	view := &doctorView{Store: a.store}
	switch scheme {
	case "dynamodb":
		if err := doctorDynamo(ctx, a.store, rest, flags, view); err != nil {
			return err
		}
	default:
		if flags.create || flags.pitr || flags.protect || len(flags.tags) > 0 {
			return usageError{errors.New("--create-table, --pitr, --deletion-protection and --tag are only for a dynamodb: store")}
		}
		if redis.Knows(scheme) {
			if err := doctorRedis(ctx, a.store, view); err != nil {
				return err
			}
			break
		}
		st, err := openStore(a.store, existing)
		if err == nil {
			err = st.Close()
		}
		var usage usageError
		if errors.As(err, &usage) {
			return err
		}
		view.add("store", err, "opens")
	}
	view.OK = true
	for _, f := range view.Findings {
		view.OK = view.OK && f.OK
	}
	if err := a.print(view, func() { a.findings(view) }); err != nil {
		return err
	}
	if !view.OK {
		return quietError{codeError{errors.New("problems found"), unavailable}}
	}
	return nil
}

func (a *app) findings(view *doctorView) {
	t := &term.Table{Header: []string{"", "WHAT", "FOUND", "TO DO"}}
	for _, f := range view.Findings {
		mark := "ok"
		if !f.OK {
			mark = a.out.Bad("no")
		}
		t.Rows = append(t.Rows, []string{mark, f.Name, f.Detail, f.Remedy})
	}
	a.out.Table(t)
}

func doctorDynamo(ctx context.Context, address, rest string, flags doctorFlags, view *doctorView) error {
	d, err := parseDynamo(address, rest)
	if err != nil {
		return err
	}
	tags := make(map[string]string)
	for _, tag := range flags.tags {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return usageError{fmt.Errorf("--tag %q is not KEY=VALUE", tag)}
		}
		tags[key] = value
	}
	if !flags.create && (flags.pitr || flags.protect || len(tags) > 0) {
		return usageError{errors.New("--pitr, --deletion-protection and --tag need --create-table")}
	}
	cfg, err := d.aws(ctx)
	if err != nil {
		view.add("configuration", err, "")
		return nil
	}
	switch {
	case d.endpoint != "":
		view.add("endpoint", nil, d.endpoint)
	case cfg.Region == "":
		view.add("region", &weir.StoreError{Err: errors.New("is not set"), Hint: "set region= in the store's URL, or AWS_REGION"}, "")
		return nil
	default:
		view.add("region", nil, cfg.Region)
	}
	who, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		view.add("credentials", &weir.StoreError{Err: errors.New("none found"), Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, or give the machine a role"}, "")
		return nil //nolint:nilerr // reported as a finding
	}
	view.add("credentials", nil, "from "+who.Source)
	client := d.client(cfg)
	var report dynamodb.Report
	if flags.create {
		report, err = dynamodb.Create(ctx, client, d.table, dynamodb.CreateConfig{
			Tags: tags, PITR: flags.pitr, DeletionProtection: flags.protect,
		})
	} else {
		report, err = dynamodb.Check(ctx, client, d.table)
	}
	for _, f := range report.Findings {
		view.Findings = append(view.Findings, finding(f))
	}
	if err != nil {
		view.add("table", err, "")
	}
	return nil
}
