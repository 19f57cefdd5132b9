package cloud

import "maps"

// translation maps a CloudFormation type to Terraform's AWS provider.
type translation struct {
	name       string
	kept       bool              // if the resource survives its stack, Terraform must not destroy it
	attributes map[string]string // attributes by CloudFormation name, "" for Ref. Text after a } follows the reference
	body       func(p props, id string) obj
}

// props holds the translated properties of a resource.
type props struct {
	module *module
	of     obj
}

// get returns a nested property, or nil if there is none.
func (p props) get(path ...string) any {
	var v any = p.of
	for _, name := range path {
		of, _ := v.(obj)
		v = of[name]
	}
	return v
}

func (p props) in(name string) props {
	of, _ := p.of[name].(obj)
	return props{p.module, of}
}

func (p props) all(name string) []props {
	var out []props
	of, _ := p.of[name].(list)
	for _, v := range of {
		out = append(out, props{p.module, v.(obj)})
	}
	return out
}

// same copies properties whose names differ only in spelling.
func (p props) same(names ...string) obj {
	out := obj{}
	for _, name := range names {
		if v, ok := p.of[name]; ok {
			out[snake(name)] = v
		}
	}
	return out
}

// text returns a JSON document as a string.
func (p props) text(name string) any { return compact(p.of[name]) }

func with(o obj, more obj) obj {
	maps.Copy(o, more)
	return o
}

// translations covers every type that a stack may contain.
var translations = map[string]translation{
	"AWS::DynamoDB::Table": {"aws_dynamodb_table", true, map[string]string{"": "name", "Arn": "arn", "StreamArn": "stream_arn"}, tableBody},
	"AWS::ApplicationAutoScaling::ScalableTarget": {"aws_appautoscaling_target", false, map[string]string{"": "id"}, func(p props, _ string) obj {
		return p.same("ServiceNamespace", "ResourceId", "ScalableDimension", "MinCapacity", "MaxCapacity")
	}},
	"AWS::ApplicationAutoScaling::ScalingPolicy": {"aws_appautoscaling_policy", false, nil, scalingBody},
	"AWS::S3::Bucket": {"aws_s3_bucket", true, map[string]string{"": "bucket", "Arn": "arn"}, bucketBody},
	"AWS::S3::BucketPolicy": {"aws_s3_bucket_policy", false, nil, func(p props, _ string) obj {
		return obj{"bucket": p.of["Bucket"], "policy": p.text("PolicyDocument")}
	}},
	// In Terraform, a log group's ARN lacks the trailing :*.
	"AWS::Logs::LogGroup": {"aws_cloudwatch_log_group", true, map[string]string{"": "name", "Arn": "arn}:*"}, func(p props, _ string) obj {
		return obj{"name": p.of["LogGroupName"], "retention_in_days": p.of["RetentionInDays"]}
	}},
	"AWS::Lambda::Function":           {"aws_lambda_function", false, map[string]string{"": "function_name", "Arn": "arn"}, functionBody},
	"AWS::Lambda::EventSourceMapping": {"aws_lambda_event_source_mapping", false, map[string]string{"": "uuid"}, sourceBody},
	"AWS::SNS::Topic": {"aws_sns_topic", false, map[string]string{"": "arn", "TopicName": "name"}, func(p props, _ string) obj {
		return obj{"name": p.of["TopicName"], "kms_master_key_id": p.of["KmsMasterKeyId"]}
	}},
	"AWS::IAM::Role": {"aws_iam_role", false, map[string]string{"": "name", "Arn": "arn"}, roleBody},
	"AWS::IAM::ManagedPolicy": {"aws_iam_policy", false, map[string]string{"": "arn"}, func(p props, _ string) obj {
		return obj{"name": p.of["ManagedPolicyName"], "description": p.of["Description"], "policy": p.text("PolicyDocument")}
	}},
	"AWS::CloudWatch::Alarm":     {"aws_cloudwatch_metric_alarm", false, nil, alarmBody},
	"AWS::CloudWatch::Dashboard": {"aws_cloudwatch_dashboard", false, nil, func(p props, _ string) obj { return p.same("DashboardName", "DashboardBody") }},
	"AWS::EC2::SecurityGroup":    {"aws_security_group", false, map[string]string{"": "id", "GroupId": "id"}, groupBody},
	"AWS::EC2::SecurityGroupIngress": {"aws_vpc_security_group_ingress_rule", false, nil, func(p props, _ string) obj {
		return with(p.same("IpProtocol", "FromPort", "ToPort"), obj{"security_group_id": p.of["GroupId"], "referenced_security_group_id": p.of["SourceSecurityGroupId"]})
	}},
	"AWS::ElastiCache::SubnetGroup": {"aws_elasticache_subnet_group", false, map[string]string{"": "name"}, func(p props, id string) obj {
		return with(p.same("Description", "SubnetIds"), obj{"name": p.named(id)})
	}},
	"AWS::ElastiCache::ParameterGroup":   {"aws_elasticache_parameter_group", false, map[string]string{"": "name"}, parametersBody},
	"AWS::ElastiCache::ReplicationGroup": {"aws_elasticache_replication_group", false, map[string]string{"": "id", "PrimaryEndPoint.Address": "primary_endpoint_address", "PrimaryEndPoint.Port": "port"}, valkeyBody},
	"AWS::SQS::Queue":                    {"aws_sqs_queue", false, map[string]string{"": "url", "Arn": "arn", "QueueName": "name"}, queueBody},
	"AWS::SQS::QueuePolicy": {"aws_sqs_queue_policy", false, nil, func(p props, _ string) obj {
		return obj{"queue_url": p.of["Queues"].(list)[0], "policy": p.text("PolicyDocument")}
	}},
	"AWS::SNS::Subscription": {"aws_sns_topic_subscription", false, nil, func(p props, _ string) obj {
		return with(p.same("TopicArn", "Protocol", "Endpoint", "RawMessageDelivery"), obj{"redrive_policy": p.text("RedrivePolicy")})
	}},
	"AWS::WAFv2::WebACL":         {"aws_wafv2_web_acl", false, map[string]string{"": "id", "Arn": "arn"}, floorBody},
	"AWS::ApiGateway::UsagePlan": {"aws_api_gateway_usage_plan", false, map[string]string{"": "id"}, planBody},
	"AWS::AppConfig::Application": {"aws_appconfig_application", false, map[string]string{"": "id"}, func(p props, _ string) obj {
		return p.same("Name", "Description")
	}},
	"AWS::AppConfig::Environment":          {"aws_appconfig_environment", false, map[string]string{"": "environment_id"}, environmentBody},
	"AWS::AppConfig::ConfigurationProfile": {"aws_appconfig_configuration_profile", false, map[string]string{"": "configuration_profile_id"}, profileBody},
	"AWS::AppConfig::DeploymentStrategy": {"aws_appconfig_deployment_strategy", false, map[string]string{"": "id"}, func(p props, _ string) obj {
		return p.same("Name", "Description", "DeploymentDurationInMinutes", "GrowthType", "GrowthFactor", "FinalBakeTimeInMinutes", "ReplicateTo")
	}},
	"AWS::AppConfig::HostedConfigurationVersion": {"aws_appconfig_hosted_configuration_version", false, map[string]string{"": "version_number"}, func(p props, _ string) obj {
		return p.same("ApplicationId", "ConfigurationProfileId", "Content", "ContentType")
	}},
	"AWS::AppConfig::Deployment": {"aws_appconfig_deployment", false, nil, func(p props, _ string) obj {
		return p.same("ApplicationId", "EnvironmentId", "ConfigurationProfileId", "ConfigurationVersion", "DeploymentStrategyId")
	}},
}
