package cloud

import (
	"maps"
	"strconv"
)

// function is one of the modes of cmd/weir-lambda.
type function struct {
	id, suffix, mode string // logical ID, suffix of its name, and WEIR_LAMBDA
	roleSuffix, role string // suffix of its role, or the ARN of an existing role
	concurrency      int
	env              obj
	may              list // statements of its role
}

const (
	runtime = "provided.al2023"
	handler = "bootstrap"
	machine = "arm64"
)

// code declares parameters for the location of the functions' package, for users who deploy a template by hand.
func (p *Params) code(s *stack) {
	if p.NoAggregator && p.NoProvisioner && !p.ConfigFlow {
		return
	}
	s.Parameters["CodeBucket"] = parameter{Type: "String", Description: "The bucket that holds the functions' package", Default: p.CodeBucket, AllowedPattern: "^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"}
	s.Parameters["CodeKey"] = parameter{Type: "String", Description: "The key of the package in the bucket; make lambda builds the package", Default: p.CodeKey, AllowedPattern: "^.{1,1024}$"}
}

// function describes a function with its log group and, unless one is given, its role.
func (p *Params) function(s *stack, f *function) {
	name, group := p.Stack+"-"+f.suffix, f.id+"Logs"
	s.add(group, "AWS::Logs::LogGroup", obj{"LogGroupName": "/aws/lambda/" + name, "RetentionInDays": p.LogDays}).keep(!p.NoRetain)
	var role any = f.role
	if f.role == "" {
		id := f.id + "Role"
		p.role(s, id, f.roleSuffix, obj{"Service": "lambda.amazonaws.com"}, obj{
			"Policies": list{obj{"PolicyName": "function", "PolicyDocument": document(append(f.may, p.logs(group)...)...)}},
		})
		role = att{id, "Arn"}
	}
	env := obj{"WEIR_LAMBDA": f.mode, "WEIR_TABLE": ref("Table")}
	maps.Copy(env, f.env)
	properties := obj{
		"FunctionName": name, "Description": "weir: " + f.mode, "Role": role, "Runtime": runtime, "Handler": handler, "Architectures": list{machine},
		"Code":       obj{"S3Bucket": ref("CodeBucket"), "S3Key": ref("CodeKey")},
		"MemorySize": p.Memory, "Timeout": p.Timeout, "Environment": obj{"Variables": env},
		"LoggingConfig": obj{"LogGroup": ref(group)},
	}
	if f.concurrency > 0 {
		properties["ReservedConcurrentExecutions"] = f.concurrency
	}
	if p.Tracing {
		properties["TracingConfig"] = obj{"Mode": "Active"}
	}
	s.add(f.id, "AWS::Lambda::Function", properties)
	s.out(f.id+"Arn", "The function", att{f.id, "Arn"})
}

// logs lets a function write logs and traces.
func (p *Params) logs(group string) list {
	may := list{obj{"Effect": "Allow", "Action": list{"logs:CreateLogStream", "logs:PutLogEvents"}, "Resource": sub("${" + group + ".Arn}")}}
	if p.Tracing {
		may = append(may, obj{"Effect": "Allow", "Action": list{"xray:PutTelemetryRecords", "xray:PutTraceSegments"}, "Resource": "*"})
	}
	return may
}

func (p *Params) aggregator(s *stack) {
	if p.NoAggregator {
		return
	}
	f := &function{
		id: "Aggregator", suffix: "aggregator", mode: "aggregate", roleSuffix: "aggr", role: p.AggregatorRole,
		concurrency: p.Concurrency, env: p.retention(), may: append(p.may(s, aggregate, onTable), p.stream()...),
	}
	filters := list{filter(bucketRecords())}
	if !p.NoArchive {
		f.env["WEIR_ARCHIVE_BUCKET"] = ref("ArchiveBucket")
		f.may = append(f.may, obj{"Effect": "Allow", "Action": "s3:PutObject", "Resource": sub("${ArchiveBucket.Arn}/" + auditPrefix + "*")})
		filters = append(filters, filter(expiredAudit()))
	}
	p.function(s, f)
	p.source(s, f.id, filters)
}

// retention returns how long usage windows are kept.
func (p *Params) retention() obj {
	return obj{
		"WEIR_USAGE_RETENTION_HOURLY":  days(p.UsageHourly),
		"WEIR_USAGE_RETENTION_DAILY":   days(p.UsageDaily),
		"WEIR_USAGE_RETENTION_MONTHLY": days(p.UsageMonthly),
	}
}

func days(n int) string {
	if n == 0 {
		return "forever"
	}
	return strconv.Itoa(n) + "d"
}

func (p *Params) provisioner(s *stack) {
	if p.NoProvisioner {
		return
	}
	p.function(s, &function{
		id: "Provisioner", suffix: "provisioner", mode: "provision", roleSuffix: "prov", role: p.ProvisionerRole,
		env: obj{"WEIR_AUDIT_RETENTION": days(p.AuditDays)}, may: p.may(s, provision, onTable),
	})
	out := s.Outputs["ProvisionerArn"]
	out.Export = &export{"${AWS::StackName}-LimitsProvisionerArn"}
	s.Outputs["ProvisionerArn"] = out
}

func (p *Params) configFlow(s *stack) {
	if !p.ConfigFlow {
		return
	}
	topic := obj{"TopicName": p.Stack + "-config"}
	if p.KMSKey != "" {
		topic["KmsMasterKeyId"] = p.KMSKey
	}
	s.add("ConfigTopic", "AWS::SNS::Topic", topic)
	f := &function{
		id: "Config", suffix: "config", mode: "config", roleSuffix: "config", role: p.ConfigRole,
		concurrency: p.ConfigConcurrency, env: obj{"WEIR_TOPIC": ref("ConfigTopic")},
		may: append(p.stream(), obj{"Effect": "Allow", "Action": "sns:Publish", "Resource": ref("ConfigTopic")}),
	}
	p.function(s, f)
	p.source(s, f.id, list{filter(configRecords())})
	s.out("ConfigTopicArn", "The topic that cells subscribe to: changes of entities, limits and namespaces", ref("ConfigTopic"))
}

// stream lets a function read the stream, and store the records it failed on.
func (p *Params) stream() list {
	may := append(streamReads("Table"),
		obj{"Effect": "Allow", "Action": "s3:PutObject", "Resource": sub("${ArchiveBucket.Arn}/" + failurePrefix + "*")},
		obj{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": att{"ArchiveBucket", "Arn"}},
	)
	if p.KMSKey != "" {
		may = append(may, obj{"Effect": "Allow", "Action": list{"kms:Decrypt", "kms:GenerateDataKey"}, "Resource": p.KMSKey})
	}
	return may
}

func streamReads(table string) list {
	return list{
		obj{"Effect": "Allow", "Action": list{"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"}, "Resource": att{table, "StreamArn"}},
		obj{"Effect": "Allow", "Action": "dynamodb:ListStreams", "Resource": "*"}, // has no resource-level permissions
	}
}

// attempts is how often a batch is tried before its records go to the failures.
const attempts = 3

// source lets a function read the stream. A batch that fails is bisected down to the record at fault. That record is
// stored whole in the archive bucket once it was tried often enough or is too old, so a shard never waits for one record.
func (p *Params) source(s *stack, id string, filters list) {
	s.add(id+"Source", "AWS::Lambda::EventSourceMapping", obj{
		"FunctionName": ref(id), "EventSourceArn": att{"Table", "StreamArn"}, "StartingPosition": "TRIM_HORIZON",
		"BatchSize": p.Batch, "MaximumBatchingWindowInSeconds": p.BatchWindow, "ParallelizationFactor": p.Parallel,
		"BisectBatchOnFunctionError": true, "FunctionResponseTypes": list{"ReportBatchItemFailures"},
		"MaximumRetryAttempts": attempts, "MaximumRecordAgeInSeconds": p.RecordAge,
		"DestinationConfig": obj{"OnFailure": obj{"Destination": att{"ArchiveBucket", "Arn"}}},
		"FilterCriteria":    obj{"Filters": filters},
		"MetricsConfig":     obj{"Metrics": list{"EventCount"}},
	})
}
