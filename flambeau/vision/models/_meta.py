"""Lists of class names under torchvision's private names, which programs import."""

from .._categories import class_names

_IMAGENET_CATEGORIES = class_names("imagenet")
_COCO_CATEGORIES = class_names("coco")
_COCO_PERSON_CATEGORIES = class_names("person")
_COCO_PERSON_KEYPOINT_NAMES = class_names("keypoint")
_VOC_CATEGORIES = class_names("voc")
_KINETICS400_CATEGORIES = class_names("kinetics400")
