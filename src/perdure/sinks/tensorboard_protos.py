"""tensorboard's messages; their modules are generated when they are loaded, so that no type checker sees into them."""

from typing import Any, cast

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2

Event: Any = cast(Any, event_pb2).Event
SessionLog: Any = cast(Any, event_pb2).SessionLog
Summary: Any = cast(Any, summary_pb2).Summary
SummaryMetadata: Any = cast(Any, summary_pb2).SummaryMetadata
TensorProto: Any = cast(Any, tensor_pb2).TensorProto
TensorShapeProto: Any = cast(Any, tensor_shape_pb2).TensorShapeProto
DT_STRING: Any = cast(Any, types_pb2).DT_STRING
